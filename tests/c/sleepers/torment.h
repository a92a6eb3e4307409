/*
 * What disturbs the threads of sleepers.c: signals, cancellation, and a process beside this one
 * that stops and continues it. Each may wake a thread that has missed its wake-up. So there are
 * quiet times without any, and all stop as soon as nothing moves.
 */
#ifndef FERROCE_TESTS_SLEEPERS_TORMENT_H
#define FERROCE_TESTS_SLEEPERS_TORMENT_H

#include "waits.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { NEVER, SELDOM, OFTEN, TEMPERS };
/* An epoch, the time between two disturbances of each temper, and that for which it is stopped. */
enum { EPOCH_US = 600000, SELDOM_US = 20000, OFTEN_US = 2000, STOPPED_US = 200000 };
/* Of the times at which one may be disturbed, and is seldom, one in so many. */
enum { SELDOM_OF = 10 };
/* The longest time until there is another soloist. */
enum { SOLO_US = 200000 };

/* What the process and the one that stops it know of each other. */
struct ward {
	atomic_int temper;
	atomic_bool is_still;
	atomic_ulong stops;
};

static struct ward *ward;

static void on_signal(int signal)
{
	(void)signal;
}

/* The signals that threads are disturbed with. */
static sigset_t disturbing(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGALRM);
	return set;
}

static void start_sleeper(struct sleeper *sleeper)
{
	sigset_t set = disturbing();

	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	MUST(pthread_create(&sleeper->thread, NULL, sleep_and_serve, sleeper));
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void cancel_sleeper(struct sleeper *sleeper)
{
	void *result;

	MUST(pthread_cancel(sleeper->thread));
	MUST(pthread_join(sleeper->thread, &result));
	EXPECT(result == PTHREAD_CANCELED);
	count(CANCELLED);
}

static void disturb(struct sleeper *sleeper)
{
	/* SIGUSR2 lets a wait go on; the others end it with EINTR. */
	static const int signals[] = { SIGUSR1, SIGALRM, SIGUSR2 };

	if (chance(6) == 0) {
		cancel_sleeper(sleeper);
		start_sleeper(sleeper);
	} else {
		MUST(pthread_kill(sleeper->thread, signals[chance(3)]));
		count(SIGNALS);
	}
}

/* A channel on which something has moved since the last call, or NOBODY. */
static int busy_channel(void)
{
	static unsigned long seen[PAIRS];
	int busy = NOBODY;

	for (int i = 0; i < PAIRS; i++) {
		unsigned long moved = pairs[i].moved;

		if (moved != seen[i])
			busy = (int)(pairs[i].receives->channel - channels);
		seen[i] = moved;
	}
	return busy;
}

/* Begins or ends a solo: threads that are to wait in another way are woken for it. */
static void change_soloist(void)
{
	int next = chance(2) ? busy_channel() : NOBODY;

	soloist = next;
	for (int i = 0; i < SLEEPERS && next != NOBODY; i++)
		if (!waits_on(&sleepers[i], &channels[next]) && sleepers[i].way != POLL_BLOCKING)
			MUST(pthread_kill(sleepers[i].thread, SIGUSR1));
	if (next != NOBODY)
		count(SOLOS);
}

static void *torment(void *unused)
{
	struct chance own = chance_of(SLEEPERS);
	double next_temper = 0, next_solo = 0;

	(void)unused;
	mine = &own;
	while (!ended) {
		double now = now_us(CLOCK_MONOTONIC);
		int temper = ward->temper;

		pause_us(chance(temper == OFTEN ? OFTEN_US : SELDOM_US));
		if (ward->is_still)
			continue;
		if (temper == OFTEN || (temper == SELDOM && chance(SELDOM_OF) == 0))
			disturb(&sleepers[chance(SLEEPERS)]);
		if (now > next_temper) {
			ward->temper = (int)chance(TEMPERS);
			next_temper = now + chance(EPOCH_US);
		}
		if (now > next_solo) {
			change_soloist();
			next_solo = now + chance(SOLO_US);
		}
	}
	return NULL;
}

static void prepare_signals(void)
{
	struct sigaction ends = { .sa_handler = on_signal };
	struct sigaction goes_on = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigset_t set = disturbing();

	MUST(sigaction(SIGUSR1, &ends, NULL));
	MUST(sigaction(SIGALRM, &ends, NULL));
	MUST(sigaction(SIGUSR2, &goes_on, NULL));
	MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
}

/* Stops and continues a process until it ends. Returns its exit status. */
static int guard(pid_t child)
{
	struct chance own = chance_of(SLEEPERS + 1);
	int status;

	mine = &own;
	while (waitpid(child, &status, WNOHANG) == 0) {
		pause_us(chance(ward->temper == OFTEN ? EPOCH_US / 4 : EPOCH_US));
		if (ward->temper == NEVER || ward->is_still)
			continue;
		kill(child, SIGSTOP);
		pause_us(chance(STOPPED_US));
		kill(child, SIGCONT);
		ward->stops++;
	}
	if (!WIFEXITED(status))
		die("signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

/* Goes on as a process that is stopped now and then; the first one only returns at its end. */
static void be_guarded(void)
{
	pid_t child, parent = getpid();

	ward = mmap(NULL, sizeof *ward, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(ward != MAP_FAILED);
	fflush(stdout);
	EXPECT((child = fork()) >= 0);
	if (child > 0)
		exit(guard(child));
	MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
	EXPECT(getppid() == parent);
}

#endif
