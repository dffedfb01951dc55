/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines that say what went wrong and what to do. The kernel says ENOMEM for
 * several limits: each is looked at and the one that was met named. A
 * connection that broke is told with both its ends and the likely cause.
 */
#include "keys.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CAP_IPC_LOCK_BIT 14
#define MAPS_NEAR_LIMIT	 16 /* a registration splits a few mappings */

static bool may_lock_anything(void)
{
	unsigned long long caps = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	fclose(f);
	return (caps >> CAP_IPC_LOCK_BIT) & 1;
}

static bool maps_exhausted(long *limit)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	long maps = 0;
	int c;

	if (!f)
		return false;
	if (fscanf(f, "%ld", limit) != 1)
		*limit = 0;
	fclose(f);
	f = *limit > 0 ? fopen("/proc/self/maps", "re") : NULL;
	if (!f)
		return false;
	while ((c = getc(f)) != EOF)
		maps += c == '\n';
	fclose(f);
	return maps + MAPS_NEAR_LIMIT >= *limit;
}

static int explain_enomem(struct rail *rail, const char *what, size_t bytes)
{
	unsigned mrs = atomic_load(&rail->mrs);
	struct rlimit rl;
	long maps;

	if (!getrlimit(RLIMIT_MEMLOCK, &rl) && rl.rlim_cur != RLIM_INFINITY &&
	    !may_lock_anything())
		return vbn_fail(
			-ENOMEM,
			"verbs: %s on %s needs %zu bytes of locked "
			"memory for %u device(s), over the limit of %llu "
			"with what is locked already; raise it: ulimit "
			"-l unlimited, memlock in "
			"/etc/security/limits.conf, or give "
			"CAP_IPC_LOCK",
			what, rail->name, bytes,
			rail->job ? rail->job->nrails : 1,
			(unsigned long long)rl.rlim_cur);
	if (rail->attr.max_mr > 0 && mrs >= (unsigned)rail->attr.max_mr)
		return vbn_fail(-ENOMEM,
				"verbs: %s: %s holds %u registrations, its "
				"max_mr is %d; register fewer, larger regions "
				"(a pool)",
				what, rail->name, mrs, rail->attr.max_mr);
	if (maps_exhausted(&maps))
		return vbn_fail(-ENOMEM,
				"verbs: %s: the process has as many mappings "
				"as vm.max_map_count (%ld) allows; raise it by "
				"sysctl, or register fewer, larger regions (a "
				"pool)",
				what, maps);
	return vbn_fail(-ENOMEM,
			"verbs: %s of %zu bytes on %s: out of memory with %u "
			"registrations (max_mr %d); the device or the kernel "
			"has no more, free some",
			what, bytes, rail->name, mrs, rail->attr.max_mr);
}

int limits_explain(struct rail *rail, int err, const char *what, size_t bytes)
{
	switch (err) {
	case ENOMEM:
		return explain_enomem(rail, what, bytes);
	case EFAULT:
		return vbn_fail(-EFAULT,
				"verbs: %s of %zu bytes on %s: not all of it "
				"is mapped and writable",
				what, bytes, rail->name);
	default:
		return vbn_fail(err ? -err : -EIO, "verbs: %s on %s: %s", what,
				rail->name, strerror(err));
	}
}

/* ---- why a key does not do ---- */

int post_refuse_key(const struct blob *blob, unsigned access)
{
	if (blob->len <= sizeof(struct announcement))
		return vbn_fail(-EKEYREJECTED, "verbs: the region has no key "
					       "for this device");
	return vbn_fail(-EACCES,
			"verbs: the target registered this memory without %s "
			"access",
			access == VBN_ACCESS_READ    ? "read"
			: access == VBN_ACCESS_WRITE ? "write"
						     : "atomic");
}

/* ---- why a connection broke ---- */

static const char *status_cause(const struct rail *rail,
				enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return atomic_load(&rail->port_down)
			       ? "no answer: our port is down"
			       : "no answer: peer dead, path down, MTU or ACL "
				 "on the way";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer posts no receives: is it stuck?";
	case IBV_WC_WR_FLUSH_ERR:
		return "the queue pair was in error already: the peer closed "
		       "or refused an access of ours or its own failed";
	case IBV_WC_REM_ACCESS_ERR:
		return "the target's key is wrong, stale, or lacks the access";
	case IBV_WC_LOC_PROT_ERR:
		return "a local buffer was unregistered or unmapped in flight";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the target cannot do this operation";
	case IBV_WC_REM_OP_ERR:
		return "the target's device failed at it";
	default:
		return "device error, see the kernel's log";
	}
}

static const char *event_cause(enum ibv_event_type event)
{
	switch (event) {
	case IBV_EVENT_DEVICE_FATAL:
		return "the device has failed; see the kernel's log, restart "
		       "the job";
	case IBV_EVENT_CQ_ERR:
		return "the completion queue has overrun";
	case IBV_EVENT_SRQ_ERR:
		return "the shared receive queue has failed";
	case IBV_EVENT_QP_ACCESS_ERR:
		return "the peer's access was refused here: its key is wrong "
		       "or stale";
	case IBV_EVENT_QP_REQ_ERR:
		return "the peer sent a request that is not valid";
	default:
		return "the queue pair has failed, see the kernel's log";
	}
}

void limits_why(const struct verbs_conn *conn, char *why, size_t room)
{
	const struct pair *pair = &conn->pair[conn->fail_pair];
	const struct rail *rail = &conn->ctx->job->rail[pair->rail];
	unsigned event = atomic_load(&conn->event);
	char path[PATH_WHY];

	path_text(&rail->port, &pair->path, path);
	if (event)
		snprintf(why, room, "verbs: %s: %s; %s", path,
			 ibv_event_type_str((enum ibv_event_type)(event - 1)),
			 event_cause((enum ibv_event_type)(event - 1)));
	else
		snprintf(why, room,
			 "verbs: %s: %s failed: %s (status %d, vendor 0x%x); "
			 "%s",
			 path, conn->fail_what,
			 ibv_wc_status_str(conn->fail_wc), (int)conn->fail_wc,
			 conn->fail_vendor, status_cause(rail, conn->fail_wc));
}
