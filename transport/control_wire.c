/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Framing of the control plane. Nothing here is read through a
 * struct, and no length is believed before it was compared with a bound.
 */
#include "control_wire.h"
#include "control_net.h"
#include "error.h"
#include "wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define IN_SMALL  4096u
#define IN_LARGE  16384u
#define OUT_IOVEC 16

/* ---- frames to send ---- */

static struct wire_frame *frame_alloc(size_t room)
{
	struct wire_frame *f = malloc(sizeof(*f) + room + WIRE_TAG);

	if (f) {
		f->next = NULL;
		f->len = f->sent = 0;
		f->room = room;
	}
	return f;
}

struct wire_frame *wire_frame(enum wire_type type, size_t body)
{
	struct wire_frame *f = frame_alloc(5 + body);

	wire_put_u32(f, (uint32_t)(1 + body));
	wire_put_u8(f, (uint8_t)type);
	return f;
}

void wire_put_bytes(struct wire_frame *f, const void *data, size_t len)
{
	if (!f || !len || len > f->room - f->len)
		return;
	memcpy(f->data + f->len, data, len);
	f->len += len;
}

void wire_put_u8(struct wire_frame *f, uint8_t v)
{
	wire_put_bytes(f, &v, 1);
}

void wire_put_u32(struct wire_frame *f, uint32_t v)
{
	uint8_t bytes[4];

	put_u32(bytes, v);
	wire_put_bytes(f, bytes, 4);
}

void wire_put_u64(struct wire_frame *f, uint64_t v)
{
	uint8_t bytes[8];

	put_u64(bytes, v);
	wire_put_bytes(f, bytes, 8);
}

void wire_put_key(struct wire_frame *f, const char *key, size_t len)
{
	wire_put_u8(f, (uint8_t)len);
	wire_put_bytes(f, key, len);
}

/* ---- frames that came ---- */

static const uint8_t *get(struct wire_reader *r, size_t len)
{
	const uint8_t *p = r->p;

	if (r->bad || len > (size_t)(r->end - r->p)) {
		r->bad = true;
		return NULL;
	}
	r->p += len;
	return p;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
	const uint8_t *p = get(r, 1);

	return p ? *p : 0;
}

uint32_t wire_get_u32(struct wire_reader *r)
{
	const uint8_t *p = get(r, 4);

	return p ? get_u32(p) : 0;
}

uint64_t wire_get_u64(struct wire_reader *r)
{
	const uint8_t *p = get(r, 8);

	return p ? get_u64(p) : 0;
}

const char *wire_get_key(struct wire_reader *r, size_t *len, bool empty)
{
	size_t n = wire_get_u8(r);
	const uint8_t *p = get(r, n);

	if (!p || (!n && !empty) || memchr(p, 0, n)) {
		r->bad = true;
		*len = 0;
		return "";
	}
	*len = n;
	return (const char *)p;
}

const uint8_t *wire_get_rest(struct wire_reader *r, size_t *len)
{
	*len = r->bad ? 0 : (size_t)(r->end - r->p);
	return get(r, *len);
}

void wire_get_text(struct wire_reader *r, char *text, size_t room)
{
	size_t len;
	const uint8_t *p = wire_get_rest(r, &len);

	if (len >= room)
		len = room - 1;
	for (size_t i = 0; i < len; i++)
		text[i] = p[i] < ' ' || p[i] > '~' ? '?' : (char)p[i];
	text[len] = '\0';
}

/* ---- connection ---- */

void wire_init(struct wire *w, int fd)
{
	memset(w, 0, sizeof(*w));
	w->fd = fd;
	w->out_end = &w->out;
}

void wire_close(struct wire *w)
{
	struct wire_frame *next;

	for (struct wire_frame *f = w->out; f; f = next) {
		next = f->next;
		free(f);
	}
	free(w->in);
	net_close(w->fd);
	sodium_memzero(&w->crypt, sizeof(w->crypt));
	wire_init(w, -1);
}

/* What the frame at the front needs in all, once its length is there. */
static size_t in_need(const struct wire *w)
{
	if (w->in_len - w->in_off < 4)
		return 4;
	return 4 + (size_t)get_u32(w->in + w->in_off);
}

static int in_make_room(struct wire *w, size_t limit)
{
	size_t have = w->in_len - w->in_off, want = in_need(w);
	uint8_t *p;

	if (w->in_off)
		memmove(w->in, w->in + w->in_off, have);
	w->in_off = 0;
	w->in_len = have;
	/* A length that is wrong is found by wire_next(). */
	if (want < IN_SMALL || want > 4 + WIRE_FRAME_MAX + WIRE_TAG)
		want = IN_SMALL;
	if (want > limit)
		want = limit;
	if (want < have + 1)
		want = have + 1;
	if (w->in_room >= want && (w->in_room <= IN_LARGE || want > IN_LARGE))
		return 0;
	p = realloc(w->in, want);
	if (!p)
		return -ENOMEM;
	w->in = p;
	w->in_room = want;
	return 0;
}

int wire_fill(struct wire *w, size_t limit)
{
	ssize_t n;
	int rc = w->in_len - w->in_off >= limit ? -EMSGSIZE
						: in_make_room(w, limit);

	if (rc)
		return rc;
	do
		n = recv(w->fd, w->in + w->in_len, w->in_room - w->in_len,
			 MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	w->in_len += (size_t)n;
	return (int)n;
}

const uint8_t *wire_peek(const struct wire *w, size_t len)
{
	return w->in_len - w->in_off < len ? NULL : w->in + w->in_off;
}

const uint8_t *wire_take(struct wire *w, size_t len)
{
	if (w->in_len - w->in_off < len)
		return NULL;
	w->in_off += len;
	return w->in + w->in_off - len;
}

int wire_next(struct wire *w, enum wire_type *type, struct wire_reader *r)
{
	size_t have = w->in_len - w->in_off, len;
	size_t tag = w->crypt.on ? WIRE_TAG : 0;
	uint8_t *p;

	if (have < 4)
		return 0;
	p = w->in + w->in_off;
	len = get_u32(p);
	if (len < 1 + tag || len > WIRE_FRAME_MAX + tag)
		return -EPROTO;
	if (have < 4 + len)
		return 0;
	len -= tag;
	if (tag && wire_unseal(&w->crypt, p, 4, p + 4, len, p + 4 + len))
		return -EBADMSG;
	*type = (enum wire_type)p[4];
	r->p = p + 5;
	r->end = p + 4 + len;
	r->bad = false;
	w->in_off += 4 + len + tag;
	return 1;
}

static int queue(struct wire *w, struct wire_frame *f)
{
	if (!f)
		return -ENOMEM;
	if (w->out_bytes + f->len > WIRE_QUEUE_MAX) {
		free(f);
		return -ENOBUFS;
	}
	*w->out_end = f;
	w->out_end = &f->next;
	w->out_bytes += f->len;
	return 0;
}

int wire_queue(struct wire *w, struct wire_frame *f)
{
	/* A frame that is counted has to be sent. */
	if (f && w->crypt.on &&
	    w->out_bytes + f->len + WIRE_TAG <= WIRE_QUEUE_MAX) {
		put_u32(f->data, (uint32_t)(f->len - 4 + WIRE_TAG));
		wire_seal(&w->crypt, f->data, 4, f->data + 4, f->len - 4,
			  f->data + f->len);
		f->len += WIRE_TAG;
	}
	return queue(w, f);
}

int wire_queue_raw(struct wire *w, const void *data, size_t len)
{
	struct wire_frame *f = frame_alloc(len);

	wire_put_bytes(f, data, len);
	return queue(w, f);
}

static void out_consume(struct wire *w, size_t n)
{
	struct wire_frame *f;

	w->out_bytes -= n;
	while ((f = w->out) && n >= f->len - f->sent) {
		n -= f->len - f->sent;
		w->out = f->next;
		free(f);
	}
	if (f)
		f->sent += n;
	else
		w->out_end = &w->out;
}

int wire_flush(struct wire *w)
{
	struct iovec iov[OUT_IOVEC];
	struct msghdr msg = {.msg_iov = iov};
	ssize_t n;

	while (w->out) {
		msg.msg_iovlen = 0;
		for (struct wire_frame *f = w->out;
		     f && msg.msg_iovlen < OUT_IOVEC; f = f->next) {
			iov[msg.msg_iovlen].iov_base = f->data + f->sent;
			iov[msg.msg_iovlen++].iov_len = f->len - f->sent;
		}
		n = sendmsg(w->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 1 : -errno;
		out_consume(w, (size_t)n);
	}
	return 0;
}
