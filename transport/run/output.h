/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks' output: pipes in, lines with the rank in front out. Nothing here
 * blocks: what cannot be written yet is kept, and above SINK_FULL no more is
 * read, so that a slow reader slows the ranks down and not the launcher.
 */
#ifndef VERBENA_RUN_OUTPUT_H
#define VERBENA_RUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#define SINK_FULL (1u << 20)
/* A longer line is cut into lines of this length. */
#define LINE_MAX_BYTES (1u << 20)

/* Where lines go: our stdout or stderr. */
struct sink {
	int fd;
	char *data;
	size_t off, len, room;
	bool terminal;
	bool broken;	   /* it takes no more */
	int error;	   /* why: errno */
	bool plain;	   /* no rank in front of the lines */
	bool after_return; /* the cursor is at the begin of a shown line */
	const void *last;  /* the source of the last bytes */
};

/* Where they come from: one pipe of a rank. */
struct source {
	int fd; /* -1: ended */
	int rank;
	const char *label; /* in front of the lines instead of the rank */
	struct sink *sink;
	/* takes what is read, instead of lines being made of it; or NULL */
	void (*raw)(struct source *, const char *data, size_t len);
	char *line; /* begun, without an end */
	size_t len, room;
};

void sink_init(struct sink *sink, int fd);
/* Write what can be written now. */
void sink_flush(struct sink *sink);
bool sink_empty(const struct sink *sink);
bool sink_full(const struct sink *sink);
/* End a progress line, free. */
void sink_end(struct sink *sink);
/* What goes out as it is. */
void sink_put(struct sink *sink, const void *data, size_t len);
/* A line of the launcher's own: "verbena-run: ...". */
void sink_say(struct sink *sink, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* @fd is made non-blocking. */
void source_init(struct source *source, int fd, int rank, struct sink *sink);
/* One without a descriptor: it is fed. */
void source_feed(struct source *source, const char *data, size_t len);
/* Read once; false: nothing there now, or ended. */
bool source_read(struct source *source);
/* Give out a last line without an end; close. */
void source_end(struct source *source);

#endif
