/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that came before their communicator was created (early.h): a hash
 * table of communicators, each with a queue. What is refused costs its entry.
 */
#include "early.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct early_comm **find(struct early *early, uint64_t uid)
{
	struct early_comm **link =
		&early->buckets[(uid ^ uid >> 32) % EARLY_BUCKETS];

	while (*link && (*link)->uid != uid)
		link = &(*link)->next;
	return link;
}

static struct early_comm *add(struct early *early, uint64_t uid)
{
	struct early_comm **link = find(early, uid), *comm = *link;

	if (comm || early->refuses_unknown)
		return comm;
	comm = calloc(1, sizeof(*comm));
	if (!comm) {
		early->refuses_unknown = true;
		return NULL;
	}
	comm->uid = uid;
	comm->last = &comm->first;
	*link = comm;
	early->bytes += sizeof(*comm);
	return comm;
}

static void drop_messages(struct early *early, struct early_comm *comm)
{
	while (comm->first) {
		struct early_message *message = comm->first;

		comm->first = message->next;
		early->bytes -= sizeof(*message) + message->len;
		free(message);
	}
	comm->last = &comm->first;
}

int early_keep(struct early *early, uint64_t uid, struct vbn_ep *from,
	       const void *data, size_t len)
{
	struct early_comm *comm = add(early, uid);
	struct early_message *message = NULL;
	size_t bytes = sizeof(*message) + len;

	if (!comm || comm->refused)
		return -ENOBUFS;
	if (early->bytes + bytes <= early->most)
		message = malloc(bytes);
	if (!message) {
		comm->refused = true;
		drop_messages(early, comm);
		return -ENOBUFS;
	}
	*message = (struct early_message){.from = from, .len = len};
	memcpy(message->data, data, len);
	*comm->last = message;
	comm->last = &message->next;
	early->bytes += bytes;
	return 0;
}

struct early_message *early_take(struct early *early, uint64_t uid,
				 bool *refused)
{
	struct early_comm **link = find(early, uid), *comm = *link;
	struct early_message *first;

	*refused = comm ? comm->refused : early->refuses_unknown;
	if (!comm)
		return NULL;
	first = comm->first;
	for (struct early_message *m = first; m; m = m->next)
		early->bytes -= sizeof(*m) + m->len;
	early->bytes -= sizeof(*comm);
	*link = comm->next;
	free(comm);
	return first;
}

static void forget(struct early *early, struct early_comm **link)
{
	struct early_comm *comm = *link;

	drop_messages(early, comm);
	early->bytes -= sizeof(*comm);
	*link = comm->next;
	free(comm);
}

void early_drop(struct early *early, uint64_t uid)
{
	struct early_comm **link = find(early, uid);

	if (*link)
		forget(early, link);
}

void early_clear(struct early *early)
{
	for (int i = 0; i < EARLY_BUCKETS; i++)
		while (early->buckets[i])
			forget(early, &early->buckets[i]);
}
