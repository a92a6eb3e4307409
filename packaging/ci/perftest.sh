# perftest's own smoke test, each program against itself, in a job that has Ferroce (setup.sh).
last=$(($(nproc) - 1))
for what in send write read atomic; do
	for measure in lat bw; do
		run_perftest_loopback 0 $last ib_${what}_$measure -n 1000
	done
done
