/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that joins, up to the start of the job. */
#include "control_join.c"

#include "fuzz.h"

#include <stdlib.h>
#include <sys/socket.h>

static const struct control_options options = {
	.rank = 1, .nranks = 2, .host = "host", .port = 1, .timeout_ms = 1000};

/* A connection at whose other end all of @data waits, and then the end. */
static void begin(struct join *j, struct wire *wire, uint32_t *dead_ms, int *fd)
{
	int pair[2];

	if (net_pair(pair))
		abort();
	wire_init(wire, pair[0]);
	*fd = pair[1];
	*j = (struct join){.opts = &options,
			   .wire = wire,
			   .deadline = net_deadline(1000),
			   .dead_ms = dead_ms};
}

void fuzz_join_stranger(const uint8_t *data, size_t len)
{
	uint32_t dead_ms;
	struct wire wire;
	struct join j;
	int fd;

	begin(&j, &wire, &dead_ms, &fd);
	fuzz_send(fd, data, len);
	shutdown(fd, SHUT_WR);
	if (!shake_hands(&j, fuzz_key))
		abort(); /* it took a stranger for the store */
	wire_close(&wire);
	net_close(fd);
}

void fuzz_join_frames(const uint8_t *data, size_t len)
{
	struct script script = {data, data + len};
	struct wire_crypt crypt;
	const uint8_t *body;
	uint32_t dead_ms;
	struct wire wire;
	struct join j;
	uint8_t type;
	size_t n;
	int fd;

	begin(&j, &wire, &dead_ms, &fd);
	fuzz_keys(&wire.crypt, true);
	fuzz_keys(&crypt, false);
	while (script_next(&script, &type, &body, &n))
		fuzz_frame(fd, &crypt, type, body, n);
	shutdown(fd, SHUT_WR);
	(void)join_and_wait(&j);
	wire_close(&wire);
	net_close(fd);
}
