/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What verbena-run and its agents on other hosts say to each other, over the
 * agent's standard input and output. An agent begins with a line of its own,
 * since login shells may say something before; then both send frames.
 *
 *   agent            launcher
 *   HELLO                              it runs
 *                    LISTEN            rank 0's host: wait for the others
 *   ADDRESS                            at these addresses: reach.h's list
 *                    START             the command and all that it needs
 *   STARTED | FAILED                   a rank's process, or why there is none
 *   OUT, ERR                           what it writes
 *                    SIGNAL            to all ranks
 *   ENDED                              a rank: siginfo's code and status
 *   PING             PING              each is there
 */
#ifndef VERBENA_RUN_FRAME_H
#define VERBENA_RUN_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_BANNER "verbena-run agent 1\n"

#define FRAME_HEAD 12u
#define FRAME_MAX  (4u << 20) /* bytes of a frame's data */
#define PING_MS	   5000	      /* each side says something as often */
#define SILENCE_MS 60000      /* and gives the other up after this long */

enum frame_type {
	FRAME_LISTEN = 1, /* value: 1 if there are other hosts */
	FRAME_START,
	FRAME_SIGNAL, /* value: its number */
	FRAME_HELLO,
	FRAME_ADDRESS, /* value: port; data: the list */
	FRAME_STARTED, /* value: process number */
	FRAME_FAILED,  /* value: errno; rank: 1 if of exec; data: a line */
	FRAME_OUT,
	FRAME_ERR,
	FRAME_ENDED, /* value: 256 * code + status */
	FRAME_PING,
};

struct frame {
	enum frame_type type;
	uint32_t rank;
	uint32_t value;
	const char *data;
	uint32_t len;
};

/* What was read and is not yet a whole frame. */
struct frame_input {
	char *data;
	size_t off, len, room;
};

/* @head of a frame whose data follow it. */
void frame_head(char head[FRAME_HEAD], const struct frame *frame);

/*
 * Read once from @fd, which is ready. > 0: more may be there; 0: end;
 * -errno, -EAGAIN too.
 */
int frame_read(struct frame_input *in, int fd);
/* The next whole frame; its data hold until the next read. 0, -EAGAIN: not
 * whole yet; -EPROTO: no frame. */
int frame_next(struct frame_input *in, struct frame *frame);
void frame_input_free(struct frame_input *in);

/* ---- data of START and others: strings with their ends ---- */

struct strings {
	char *data;
	size_t len, room;
	bool failed; /* no memory */
};

void strings_add(struct strings *s, const char *text);
void strings_number(struct strings *s, long value);
void strings_free(struct strings *s); /* wiped: secrets are among them */

/* The next of @left bytes at *@p, or NULL. */
const char *strings_next(const char **p, size_t *left);
/* A number from @min to @max as the next; false: it is none. */
bool strings_next_number(const char **p, size_t *left, long min, long max,
			 long *out);

#endif
