/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A provider around another: every slot passes the call on, until its owner
 * puts one of its own in the table. Its structures begin with these.
 */
#ifndef VBN_WRAP_H
#define VBN_WRAP_H

#include "core.h"

struct wrap_job {
	struct provider table; /* what the core sees */
	const struct provider *ops;
	void *pjob;
	struct provider_caps caps; /* of what is inside */
	struct vbn_job *job;
	size_t ctx_bytes, conn_bytes; /* of the owner's structures */
	/* Of each connection's tap; NULL: it has none. */
	void (*notify)(struct tap *tap, uint32_t imm);
	void (*message)(struct tap *tap, const struct message_header *header,
			const void *data, size_t len);
};

struct wrap_ctx {
	struct wrap_job *pjob;
	void *pctx;
	struct vbn_ctx *ctx;
};

struct wrap_conn {
	struct tap tap; /* first; its ep is NULL until attached */
	struct wrap_ctx *pctx;
	const struct provider *ops;
	void *conn;
	struct conn_info info;
};

/*
 * Put a wrapper around an open provider. Its tables is filled with what passes
 * on. NULL: no memory.
 */
struct wrap_job *wrap_new(struct job_provider *p, struct vbn_job *job,
			  size_t job_bytes);
/* The core's from here on. */
void wrap_install(struct job_provider *p, struct wrap_job *w);

/* What passes on, for who does something before or after. */
int wrap_ctx_open(void *pjob, struct vbn_ctx *ctx, void **pctx,
		  struct blob *address);
void wrap_ctx_close(void *pctx);
int wrap_conn_attach(void *conn, struct vbn_ep *ep);
/* All but freeing @conn. */
void wrap_conn_end(void *conn, int status);

/* Around what was opened: VBN_FAULT's, VBN_CHECKSUM's. 0 or -errno. */
int fault_wrap(struct job_provider *p, struct vbn_job *job);
int checksum_wrap(struct job_provider *p, struct vbn_job *job);

#endif
