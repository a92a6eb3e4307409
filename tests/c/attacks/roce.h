/*
 * RoCEv2 packets with a right ICRC, from any program that may send UDP: the port of the sender is
 * its own.
 *
 * Layouts: IBTA volume 1, annex A17 (RoCEv2) and chapters 9 (BTH, DETH) and 12 (messages of the
 * connection manager).
 */
#ifndef FERROCE_TESTS_ROCE_H
#define FERROCE_TESTS_ROCE_H

#include "attack.h"

enum {
	ROCE_PORT = 4791,
	IP_UDP = 28,
	BTH = 12,
	DETH = 8,
	MAD = 256,
	ICRC = 4,
	LARGEST = 1400,
	UD_SEND_ONLY = 0x64,
	CM_REQ = 0x10,
	CM_REJ = 0x12
};

struct sender {
	int fd;
	struct sockaddr_in from, to;
	unsigned int seed;
	/* Behind room for the headers of IP and UDP, which the ICRC covers. */
	unsigned char packet[IP_UDP + LARGEST];
};

static uint32_t crc_table[256];

static void prepare_crc(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
		crc_table[byte] = crc;
	}
}

static void put(unsigned char *at, uint64_t value, int bytes)
{
	while (bytes-- > 0) {
		at[bytes] = (unsigned char)value;
		value >>= 8;
	}
}

/*
 * A socket with this address. The kernel gives its datagrams the identification 0, since it may not
 * cut them.
 */
static void open_sender(struct sender *sender, const char *from, const char *to)
{
	int probe = IP_PMTUDISC_PROBE;
	socklen_t length = sizeof sender->from;

	prepare_crc();
	sender->seed = 20;
	sender->from = sender->to = (struct sockaddr_in){ .sin_family = AF_INET };
	EXPECT(inet_pton(AF_INET, from, &sender->from.sin_addr) == 1);
	EXPECT(inet_pton(AF_INET, to, &sender->to.sin_addr) == 1);
	sender->to.sin_port = htons(ROCE_PORT);
	EXPECT((sender->fd = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
	MUST(setsockopt(sender->fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe));
	MUST(bind(sender->fd, (struct sockaddr *)&sender->from, sizeof sender->from));
	MUST(getsockname(sender->fd, (struct sockaddr *)&sender->from, &length));
}

/* What is behind the headers of IP and UDP. */
static unsigned char *transport(struct sender *sender)
{
	return sender->packet + IP_UDP;
}

static void UNUSED put_bth(struct sender *sender, unsigned int opcode, uint32_t qp, uint32_t psn)
{
	unsigned char *bth = transport(sender);

	put(bth, opcode, 1);
	put(bth + 1, 0x40, 1); /* migrated */
	put(bth + 2, 0xffff, 2);
	put(bth + 4, qp, 4);
	put(bth + 8, psn, 4);
}

/* Adds the ICRC and sends so many bytes. Counts what the kernel took. */
static void UNUSED launch(struct sender *sender, size_t length)
{
	unsigned char head[8 + IP_UDP + BTH], *bth = transport(sender);
	unsigned char *ip = head + 8;
	uint32_t crc = 0xffffffffu;

	memset(head, 0xff, sizeof head);
	put(ip, 0x45, 1);
	put(ip + 2, IP_UDP + length + ICRC, 2);
	put(ip + 4, 0, 4);
	put(ip + 6, 0x4000, 2);
	put(ip + 9, IPPROTO_UDP, 1);
	memcpy(ip + 12, &sender->from.sin_addr, 4);
	memcpy(ip + 16, &sender->to.sin_addr, 4);
	memcpy(ip + 20, &sender->from.sin_port, 2);
	put(ip + 22, ROCE_PORT, 2);
	put(ip + 24, 8 + length + ICRC, 2);
	memcpy(head + 8 + IP_UDP, bth, BTH);
	head[8 + IP_UDP + 4] = 0xff;
	for (size_t i = 0; i < sizeof head; i++)
		crc = crc >> 8 ^ crc_table[(crc ^ head[i]) & 0xff];
	for (size_t i = BTH; i < length; i++)
		crc = crc >> 8 ^ crc_table[(crc ^ bth[i]) & 0xff];
	crc = ~crc;
	for (int i = 0; i < ICRC; i++)
		bth[length + (size_t)i] = (unsigned char)(crc >> 8 * i);
	if (sendto(sender->fd, bth, length + ICRC, 0, (struct sockaddr *)&sender->to, sizeof sender->to) > 0)
		attack.injected++;
}

static uint32_t UNUSED draw(struct sender *sender)
{
	return (uint32_t)rand_r(&sender->seed) << 16 ^ (uint32_t)rand_r(&sender->seed);
}

/*
 * Begins a message of the connection manager: what follows the header of the MAD, 232 bytes of 0.
 */
static unsigned char UNUSED *put_mad(struct sender *sender, unsigned int attribute)
{
	unsigned char *deth = transport(sender) + BTH, *mad = deth + DETH;

	put_bth(sender, UD_SEND_ONLY, 1, draw(sender) & 0xffffff);
	put(deth, 0x80010000, 4);
	put(deth + 4, 1, 4);
	memset(mad, 0, MAD);
	put(mad, 0x01070203, 4);
	put(mad + 8, draw(sender), 8);
	put(mad + 16, attribute, 2);
	return mad + 24;
}

/*
 * A request for a connection, of a queue pair of an adapter and a new identifier, from and to the
 * addresses of the packet.
 */
static void UNUSED put_request(struct sender *sender, uint32_t service, uint64_t guid, uint32_t qp)
{
	unsigned char *req = put_mad(sender, CM_REQ), *gids = req + 56, *head = req + 140;

	put(req, draw(sender), 4);
	put(req + 8, service, 8);
	put(req + 16, guid, 8);
	put(req + 32, qp << 8 | 1, 4);
	put(req + 36, 1, 4);
	put(req + 40, 20 << 3, 4);
	put(req + 44, draw(sender) & 0xffffff00, 4);
	req[47] = 20 << 3 | 7;
	put(req + 48, 0xffff, 2);
	req[50] = 3 << 4 | 7;
	req[51] = 15 << 4;
	put(gids + 10, 0xffff, 2);
	memcpy(gids + 12, &sender->from.sin_addr, 4);
	put(gids + 26, 0xffff, 2);
	memcpy(gids + 28, &sender->to.sin_addr, 4);
	req[93] = 64;
	head[1] = 0x40;
	put(head + 2, 40000 + draw(sender) % 1000, 2);
	memcpy(head + 16, &sender->from.sin_addr, 4);
	memcpy(head + 32, &sender->to.sin_addr, 4);
}

static void UNUSED launch_mad(struct sender *sender)
{
	launch(sender, BTH + DETH + MAD);
}

#endif
