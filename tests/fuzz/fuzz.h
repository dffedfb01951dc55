/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzing of what a rank and the store read from each other. Each part takes
 * its bytes as if the other side had sent them, over a pair of sockets, in one
 * thread, and must leave nothing behind. A part includes the file it feeds,
 * to call its static functions.
 *
 * A script of frames is records: u8 type, u8 length of the body, the body;
 * length 255: u16 length follows. It gives frames that are well formed as a
 * whole, so that their fields are reached.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "control_wire.h"

/* Bytes of a stranger's connection; of one that may claim the secret. */
void fuzz_store_stranger(const uint8_t *data, size_t len);
/* The script of two ranks that know the secret; @joined: they have joined. */
void fuzz_store_frames(const uint8_t *data, size_t len, bool joined);
/* Bytes behind a good handshake: nothing that was sealed by the rank. */
void fuzz_store_unsealed(const uint8_t *data, size_t len);
/* A rank that joins: bytes of who may not be the store; the store's script. */
void fuzz_join_stranger(const uint8_t *data, size_t len);
void fuzz_join_frames(const uint8_t *data, size_t len);
/* A rank whose job runs: the store's script; bytes that it did not seal. */
void fuzz_thread_frames(const uint8_t *data, size_t len);
void fuzz_thread_unsealed(const uint8_t *data, size_t len);

struct script {
	const uint8_t *p, *end;
};

/* The next record: false at the end. */
bool script_next(struct script *s, uint8_t *type, const uint8_t **body,
		 size_t *len);
/* Keys as both sides know them; @rank: as the rank does. */
void fuzz_keys(struct wire_crypt *crypt, bool rank);
/* The key of the job's secret. */
extern uint8_t fuzz_key[WIRE_KEY];
/* Write to @fd as far as there is room. */
void fuzz_send(int fd, const void *data, size_t len);
/* One sealed frame to @fd. */
void fuzz_frame(int fd, struct wire_crypt *crypt, uint8_t type,
		const uint8_t *body, size_t len);

#endif
