/* SPDX-License-Identifier: BSD-3-Clause */
/* The target: the first byte says which part gets the others. */
#include "fuzz.h"

#include "wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <verbena/job.h>

uint8_t fuzz_key[WIRE_KEY];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

bool script_next(struct script *s, uint8_t *type, const uint8_t **body,
		 size_t *len)
{
	if (s->end - s->p < 2)
		return false;
	*type = s->p[0];
	*len = s->p[1];
	s->p += 2;
	if (*len == 255) {
		if (s->end - s->p < 2)
			return false;
		*len = get_u16(s->p);
		s->p += 2;
	}
	if (*len > (size_t)(s->end - s->p))
		*len = (size_t)(s->end - s->p);
	*body = s->p;
	s->p += *len;
	return true;
}

void fuzz_keys(struct wire_crypt *crypt, bool rank)
{
	*crypt = (struct wire_crypt){.on = true};
	memset(crypt->tx, rank ? 1 : 2, WIRE_KEY);
	memset(crypt->rx, rank ? 2 : 1, WIRE_KEY);
}

void fuzz_send(int fd, const void *data, size_t len)
{
	ssize_t n = 1;

	while (len && n > 0) {
		n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0) {
			data = (const char *)data + n;
			len -= (size_t)n;
		}
	}
}

void fuzz_frame(int fd, struct wire_crypt *crypt, uint8_t type,
		const uint8_t *body, size_t len)
{
	uint8_t *f = malloc(5 + len + WIRE_TAG);

	if (!f)
		abort();
	put_u32(f, (uint32_t)(1 + len + WIRE_TAG));
	f[4] = type;
	if (len)
		memcpy(f + 5, body, len);
	wire_seal(crypt, f, 4, f + 4, 1 + len, f + 5 + len);
	fuzz_send(fd, f, 5 + len + WIRE_TAG);
	free(f);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	setenv("VBN_LOG", "error", 1);
	if (wire_setup())
		abort();
	wire_key(fuzz_key, "secret");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (!len)
		return 0;
	switch (data[0] % 8) {
	case 0:
		fuzz_store_stranger(data + 1, len - 1);
		break;
	case 1:
		fuzz_store_frames(data + 1, len - 1, false);
		break;
	case 2:
		fuzz_store_frames(data + 1, len - 1, true);
		break;
	case 3:
		fuzz_store_unsealed(data + 1, len - 1);
		break;
	case 4:
		fuzz_join_stranger(data + 1, len - 1);
		break;
	case 5:
		fuzz_join_frames(data + 1, len - 1);
		break;
	case 6:
		fuzz_thread_frames(data + 1, len - 1);
		break;
	case 7:
		fuzz_thread_unsealed(data + 1, len - 1);
		break;
	}
	return 0;
}
