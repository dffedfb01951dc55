/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames between the launcher and its agents. Numbers are little-endian. */
#include "frame.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_ONCE 65536u

/* type and length: 8 and 24 bits */
void frame_head(char head[FRAME_HEAD], const struct frame *f)
{
	uint8_t *p = (uint8_t *)head;

	p = put_u32(p, (uint32_t)f->type << 24 | f->len);
	p = put_u32(p, f->rank);
	put_u32(p, f->value);
}

int frame_read(struct frame_input *in, int fd)
{
	char *more;
	ssize_t n;

	if (in->off) {
		memmove(in->data, in->data + in->off, in->len - in->off);
		in->len -= in->off;
		in->off = 0;
	}
	if (in->room - in->len < READ_ONCE) {
		more = realloc(in->data, in->len + 2 * READ_ONCE);
		if (!more)
			return -ENOMEM;
		in->data = more;
		in->room = in->len + 2 * READ_ONCE;
	}
	do
		n = read(fd, in->data + in->len, READ_ONCE);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	in->len += (size_t)n;
	return n > 0;
}

int frame_next(struct frame_input *in, struct frame *f)
{
	const uint8_t *head = (const uint8_t *)in->data + in->off;
	uint32_t word;

	if (in->len - in->off < FRAME_HEAD)
		return -EAGAIN;
	word = get_u32(head);
	f->type = (enum frame_type)(word >> 24);
	f->len = word & 0xffffff;
	if (f->type < FRAME_LISTEN || f->type > FRAME_PING ||
	    f->len > FRAME_MAX)
		return -EPROTO;
	if (in->len - in->off - FRAME_HEAD < f->len)
		return -EAGAIN;
	f->rank = get_u32(head + 4);
	f->value = get_u32(head + 8);
	f->data = in->data + in->off + FRAME_HEAD;
	in->off += FRAME_HEAD + f->len;
	return 0;
}

void frame_input_free(struct frame_input *in)
{
	if (in->data)
		explicit_bzero(in->data, in->room);
	free(in->data);
	*in = (struct frame_input){NULL, 0, 0, 0};
}

/* ---- strings ---- */

void strings_add(struct strings *s, const char *text)
{
	size_t n = strlen(text) + 1, room = s->room;
	char *more;

	while (s->len + n > room)
		room = room ? 2 * room : 4096;
	if (room != s->room) {
		/* Not realloc(): it would leave a copy of the secret. */
		more = s->failed ? NULL : malloc(room);
		if (!more) {
			s->failed = true;
			return;
		}
		if (s->data) {
			memcpy(more, s->data, s->len);
			explicit_bzero(s->data, s->room);
			free(s->data);
		}
		s->data = more;
		s->room = room;
	}
	memcpy(s->data + s->len, text, n);
	s->len += n;
}

void strings_number(struct strings *s, long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", value);
	strings_add(s, text);
}

void strings_free(struct strings *s)
{
	if (s->data)
		explicit_bzero(s->data, s->room);
	free(s->data);
	*s = (struct strings){NULL, 0, 0, false};
}

const char *strings_next(const char **p, size_t *left)
{
	const char *text = *p, *end = memchr(text, 0, *left);

	if (!*left || !end)
		return NULL;
	*left -= (size_t)(end + 1 - text);
	*p = end + 1;
	return text;
}

bool strings_next_number(const char **p, size_t *left, long min, long max,
			 long *out)
{
	const char *text = strings_next(p, left);
	char *end;

	if (!text || !*text)
		return false;
	errno = 0;
	*out = strtol(text, &end, 10);
	return !errno && !*end && *out >= min && *out <= max;
}
