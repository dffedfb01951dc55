/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines of the ranks. A line ends with \n, or with \r when a progress display
 * is to be overwritten: both are passed on as they came, at once.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A pipe that is writable takes that much without blocking. */
#define WRITE_ONCE 4096u
#define READ_ONCE  65536u

/* ---- sink ---- */

void sink_init(struct sink *s, int fd)
{
	memset(s, 0, sizeof(*s));
	s->fd = fd;
	s->terminal = isatty(fd);
}

static bool writable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) > 0;
}

/* Whole lines up to WRITE_ONCE; a part only of a line that is longer. */
static size_t chunk(const struct sink *s)
{
	size_t n = s->len - s->off;
	const char *end;

	if (n <= WRITE_ONCE)
		return n;
	end = memrchr(s->data + s->off, '\n', WRITE_ONCE);
	return end ? (size_t)(end - (s->data + s->off)) + 1 : WRITE_ONCE;
}

void sink_flush(struct sink *s)
{
	ssize_t n;

	while (s->off < s->len && writable(s->fd)) {
		n = write(s->fd, s->data + s->off, chunk(s));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			s->broken = true;
			s->error = errno;
			s->off = s->len;
			break;
		}
		s->off += (size_t)n;
	}
	if (s->off == s->len)
		s->off = s->len = 0;
}

bool sink_empty(const struct sink *s)
{
	return s->off == s->len;
}

bool sink_full(const struct sink *s)
{
	return s->len - s->off >= SINK_FULL;
}

void sink_put(struct sink *s, const void *data, size_t len)
{
	size_t room = s->room;
	char *more;

	if (s->broken)
		return;
	if (s->off && s->len + len > s->room) {
		memmove(s->data, s->data + s->off, s->len - s->off);
		s->len -= s->off;
		s->off = 0;
	}
	while (s->len + len > room)
		room = room ? 2 * room : 16384;
	if (room != s->room) {
		more = realloc(s->data, room);
		if (!more)
			return;
		s->data = more;
		s->room = room;
	}
	memcpy(s->data + s->len, data, len);
	s->len += len;
}

/* On a terminal, what stays of a longer progress line must not shine through.
 */
static void sink_clear_progress(struct sink *s)
{
	static const char erase[] = "\033[K";

	if (s->after_return && s->terminal)
		sink_put(s, erase, sizeof(erase) - 1);
	s->after_return = false;
}

void sink_say(struct sink *s, const char *fmt, ...)
{
	static const char name[] = "verbena-run: ";
	char line[1024];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n >= sizeof(line))
		n = (int)sizeof(line) - 1;
	sink_clear_progress(s);
	sink_put(s, name, sizeof(name) - 1);
	sink_put(s, line, (size_t)n);
	sink_put(s, "\n", 1);
	s->last = NULL;
}

void sink_end(struct sink *s)
{
	if (s->after_return && s->terminal)
		sink_put(s, "\n", 1);
	sink_flush(s);
	free(s->data);
	s->data = NULL;
	s->off = s->len = s->room = 0;
}

/* ---- source ---- */

void source_init(struct source *s, int fd, int rank, struct sink *sink)
{
	memset(s, 0, sizeof(*s));
	if (fd >= 0)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	s->fd = fd;
	s->rank = rank;
	s->sink = sink;
}

/* @end: '\n', '\r', or 0: none, and one is added. */
static void emit(struct source *s, const char *text, size_t len, char end)
{
	struct sink *sink = s->sink;
	char prefix[288];
	int n = 0;

	if (!len && end == '\r')
		return; /* a display that begins with the return */
	if (!len && sink->after_return && sink->last == s) {
		sink_put(sink, "\n", 1); /* the second half of "\r\n" */
		sink->after_return = false;
		return;
	}
	if (s->label)
		n = snprintf(prefix, sizeof(prefix), "%s: ", s->label);
	else if (!sink->plain)
		n = snprintf(prefix, sizeof(prefix), "[%d] ", s->rank);
	sink_clear_progress(sink);
	sink_put(sink, prefix, (size_t)n);
	sink_put(sink, text, len);
	sink_put(sink, end == '\r' ? "\r" : "\n", 1);
	sink->after_return = end == '\r';
	sink->last = s;
}

static bool keep(struct source *s, const char *text, size_t len)
{
	size_t room = s->room;
	char *more;

	while (s->len + len > room)
		room = room ? 2 * room : 256;
	if (room != s->room) {
		more = realloc(s->line, room);
		if (!more)
			return false;
		s->line = more;
		s->room = room;
	}
	memcpy(s->line + s->len, text, len);
	s->len += len;
	return true;
}

static void finish_line(struct source *s, const char *text, size_t len,
			char end)
{
	if (!s->len) {
		emit(s, text, len, end);
		return;
	}
	if (!keep(s, text, len)) {
		emit(s, s->line, s->len, 0);
		s->len = 0;
		emit(s, text, len, end);
		return;
	}
	emit(s, s->line, s->len, end);
	s->len = 0;
}

void source_feed(struct source *s, const char *data, size_t len)
{
	size_t begin = 0;

	for (size_t i = 0; i < len; i++)
		if (data[i] == '\n' || data[i] == '\r') {
			/* "\r\n" in one piece is one end. */
			bool both = data[i] == '\r' && i + 1 < len &&
				    data[i + 1] == '\n';

			finish_line(s, data + begin, i + both - begin,
				    both ? '\n' : data[i]);
			i += both;
			begin = i + 1;
		}
	if (begin < len && !keep(s, data + begin, len - begin))
		emit(s, data + begin, len - begin, 0);
	if (s->len >= LINE_MAX_BYTES) {
		emit(s, s->line, s->len, 0);
		s->len = 0;
	}
}

bool source_read(struct source *s)
{
	char data[READ_ONCE];
	ssize_t n;

	if (s->fd < 0)
		return false;
	if (s->sink->broken) {
		/* The rank is to see it as if it wrote there itself. */
		source_end(s);
		return false;
	}
	do
		n = read(s->fd, data, sizeof(data));
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		if (s->raw)
			s->raw(s, data, (size_t)n);
		else
			source_feed(s, data, (size_t)n);
		return true;
	}
	if (n == 0 || errno != EAGAIN)
		source_end(s);
	return false;
}

void source_end(struct source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	if (s->len)
		emit(s, s->line, s->len, 0);
	free(s->line);
	s->line = NULL;
	s->len = s->room = 0;
}
