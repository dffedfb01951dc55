/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections over shared memory: a memfd with two rings that the creator
 * makes and the acceptor fetches, and each side's page and eventfd, by which
 * a sleeping context is woken.
 */
#include "shm.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAIR_BYTES    (2 * sizeof(struct ring_shared))
#define PAGE_BYTES    4096
#define ADDRESS_BYTES (8 + SHARE_BYTES)
#define OFFER_BYTES   (4 + SHARE_BYTES)

void shm_ctx_address(const struct shm_ctx *pctx, struct blob *address)
{
	uint8_t *p = address->data;

	p = put_u32(p, (uint32_t)pctx->page_id);
	p = put_u32(p, (uint32_t)pctx->wake_id);
	memcpy(p, share_address(pctx->pjob->share), SHARE_BYTES);
	address->len = ADDRESS_BYTES;
}

static int map_shared(int fd, size_t len, void **map)
{
	*map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*map == MAP_FAILED) {
		*map = NULL;
		return vbn_fail(-errno, "shm: mmap: %s", strerror(errno));
	}
	return 0;
}

static int fetch_and_map(const uint8_t *address, int id, size_t len, void **map)
{
	int fd = share_fetch(address, id);
	int err;

	if (fd < 0)
		return fd;
	err = map_shared(fd, len, map);
	close(fd);
	return err;
}

static int reach_peer(struct shm_conn *conn, const struct blob *address)
{
	const uint8_t *p = address->data;
	void *page;
	int err, fd;

	if (conn->self) {
		conn->peer_page = conn->pctx->page;
		return 0;
	}
	if (address->len != ADDRESS_BYTES)
		return vbn_fail(-EPROTO, "shm: malformed address");
	err = fetch_and_map(p + 8, (int)get_u32(p), PAGE_BYTES, &page);
	if (err)
		return err;
	conn->peer_page = page;
	conn->fence = !conn->pctx->pjob->joined || conn->peer_page->fence;
	fd = share_fetch(p + 8, (int)get_u32(p + 4));
	if (fd < 0)
		return fd;
	conn->peer_wake = fd;
	return 0;
}

static void set_rings(struct shm_conn *conn, bool creator)
{
	conn->tx.shared = &conn->pair[creator || conn->self ? 0 : 1];
	conn->rx.shared = &conn->pair[creator && !conn->self ? 1 : 0];
}

static void conn_free(struct shm_conn *conn)
{
	if (conn->pair_id)
		share_withdraw(conn->pctx->pjob->share, conn->pair_id);
	if (conn->pair_fd >= 0)
		close(conn->pair_fd);
	if (conn->pair)
		munmap(conn->pair, PAIR_BYTES);
	if (conn->peer_page && !conn->self)
		munmap(conn->peer_page, PAGE_BYTES);
	if (conn->peer_wake >= 0)
		close(conn->peer_wake);
	free(conn);
}

static struct shm_conn *conn_new(struct shm_ctx *pctx, bool self)
{
	struct shm_conn *conn = calloc(1, sizeof(*conn));

	if (!conn) {
		vbn_fail(-ENOMEM, "shm: no memory for a connection");
		return NULL;
	}
	conn->pctx = pctx;
	conn->pair_fd = conn->peer_wake = -1;
	conn->self = self;
	return conn;
}

static int make_pair(struct shm_conn *conn, struct blob *offer)
{
	struct share *share = conn->pctx->pjob->share;
	void *map;
	int err;

	conn->pair_fd = memfd_create("verbena-rings", MFD_CLOEXEC);
	if (conn->pair_fd < 0 || ftruncate(conn->pair_fd, PAIR_BYTES) < 0)
		return vbn_fail(-errno, "shm: memfd: %s", strerror(errno));
	err = map_shared(conn->pair_fd, PAIR_BYTES, &map);
	if (err)
		return err;
	conn->pair = map;
	conn->pair_id = share_export(share, conn->pair_fd);
	if (conn->pair_id < 0) {
		conn->pair_id = 0;
		return vbn_fail(-ENOMEM, "shm: no memory");
	}
	put_u32(offer->data, (uint32_t)conn->pair_id);
	memcpy(offer->data + 4, share_address(share), SHARE_BYTES);
	offer->len = OFFER_BYTES;
	return 0;
}

int shm_conn_create(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, void **out,
		    struct blob *offer)
{
	struct shm_conn *conn = conn_new(pctx, info->self);
	int err;

	if (!conn)
		return -ENOMEM;
	err = reach_peer(conn, peer_address);
	if (!err)
		err = make_pair(conn, offer);
	if (err) {
		conn_free(conn);
		return err;
	}
	set_rings(conn, true);
	*out = conn;
	return 0;
}

int shm_conn_accept(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, const struct blob *offer,
		    void **out, struct blob *answer)
{
	struct shm_conn *conn = conn_new(pctx, info->self);
	void *map;
	int err;

	if (!conn)
		return -ENOMEM;
	err = offer->len == OFFER_BYTES
		      ? reach_peer(conn, peer_address)
		      : vbn_fail(-EPROTO, "shm: malformed offer");
	if (!err)
		err = fetch_and_map(offer->data + 4, (int)get_u32(offer->data),
				    PAIR_BYTES, &map);
	if (err) {
		conn_free(conn);
		return err;
	}
	conn->pair = map;
	set_rings(conn, false);
	answer->len = 0;
	*out = conn;
	return 0;
}

int shm_conn_finish(void *c, const struct blob *answer)
{
	struct shm_conn *conn = c;

	(void)answer;
	share_withdraw(conn->pctx->pjob->share, conn->pair_id);
	conn->pair_id = 0;
	close(conn->pair_fd);
	conn->pair_fd = -1;
	return 0;
}

int shm_conn_attach(void *c, struct vbn_ep *ep)
{
	struct shm_conn *conn = c;
	struct shm_ctx *pctx = conn->pctx;

	if (pctx->nconns == pctx->room) {
		int room = pctx->room ? 2 * pctx->room : 16;
		struct shm_conn **conns =
			realloc(pctx->conns, (size_t)room * sizeof(*conns));

		if (!conns)
			return vbn_fail(-ENOMEM, "shm: no memory");
		pctx->conns = conns;
		pctx->room = room;
	}
	conn->ep = ep;
	pctx->conns[pctx->nconns++] = conn;
	return 0;
}

void shm_conn_close(void *c, int status)
{
	struct shm_conn *conn = c;
	struct shm_ctx *pctx = conn->pctx;

	(void)status; /* what is in flight is over, and has its own */
	/* first: from here on what it sends from is its user's again */
	atomic_store_explicit(&conn->tx.shared->closed, 1,
			      memory_order_seq_cst);
	if (conn->ep) {
		for (int i = 0; i < pctx->nconns; i++)
			if (pctx->conns[i] == conn) {
				pctx->conns[i] = NULL;
				pctx->has_holes = true;
			}
		shm_done_hand_over(pctx);
		shm_given_hand_over(&conn->given, &pctx->given);
	}
	conn_free(conn);
}
