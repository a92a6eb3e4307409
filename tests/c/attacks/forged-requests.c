/*
 * Puts connection requests into the socket that claims a listener's port, as if another host had
 * sent them (issue: the listener reported a request from a third host's address). The address is
 * one of documentation (RFC 5737), which the victim knows to be nobody's.
 *
 * usage: forged-requests SECONDS PORT ADDRESS
 */
#include "attack.h"

/* The common header of a MAD, and where things are in a REQ behind it (IBTA volume 1, 12.7.1). */
enum { HEADER = 24, FRAME = 16 + 16 + 256, TCP = 0x0106 };

static void put_gid(unsigned char *to, const char *address)
{
	memset(to, 0, 10);
	memset(to + 10, 0xff, 2);
	EXPECT(inet_pton(AF_INET, address, to + 12) == 1);
}

/*
 * A request whose numbers, slot included, depend on `n`. `inside`: only what is in the request
 * claims the other host.
 */
static void put_request(unsigned char *frame, uint32_t n, unsigned long port, const char *own, bool inside)
{
	const char *other = "192.0.2.1";
	unsigned char *mad = frame + 32, *req = mad + HEADER, *private_data = req + 140;
	const unsigned char header[4] = { 1, 7, 2, 3 };

	memset(frame, 0, FRAME);
	put_gid(frame, inside ? own : other);
	put_gid(frame + 16, own);
	memcpy(mad, header, sizeof header);
	memcpy(mad + 8, &n, sizeof n);
	mad[17] = 0x10;
	/* Ids of any slot, as the attacker has none. */
	memcpy(req, &n, sizeof n);
	req[12] = TCP >> 8;
	req[13] = TCP & 0xff;
	req[14] = (unsigned char)(port >> 8);
	req[15] = (unsigned char)port;
	memcpy(req + 16, &n, sizeof n);
	req[33] = (unsigned char)(n >> 8);
	req[34] = (unsigned char)n;
	req[35] = req[39] = 4;
	req[43] = 20 << 3;
	req[47] = 20 << 3 | 7;
	req[48] = req[49] = 0xff;
	req[50] = 0x37;
	req[51] = 0xf0;
	put_gid(req + 56, other);
	put_gid(req + 72, own);
	req[93] = 64;
	req[95] = 18 << 3;
	private_data[1] = 0x40;
	private_data[2] = 0x12;
	EXPECT(inet_pton(AF_INET, other, private_data + 16) == 1);
	EXPECT(inet_pton(AF_INET, own, private_data + 32) == 1);
}

int main(int argc, char **argv)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	unsigned char frame[FRAME];
	unsigned long port;
	int fd, length;

	if (argc != 4)
		return 2;
	begin_attack(argv[1]);
	port = number(argv[2], 1, 65535);
	length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ferroce/port/tcp/%lu", port);
	EXPECT((fd = socket(AF_UNIX, SOCK_DGRAM, 0)) >= 0);
	for (uint32_t n = 1; goes_on(); n++) {
		put_request(frame, n, port, argv[3], n % 2 == 0);
		if (sendto(fd, frame, FRAME, MSG_DONTWAIT, (struct sockaddr *)&name,
			   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == FRAME)
			attack.injected++;
		else
			usleep(100);
	}
	tell();
	return 0;
}
