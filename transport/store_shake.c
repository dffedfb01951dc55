/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether who has connected knows the job's secret. */
#include "store_impl.h"
#include "control_net.h"
#include "error.h"

#include <errno.h>
#include <string.h>

static void shake_foreign(struct store *s, struct peer *p, uint32_t version)
{
	uint8_t reply[WIRE_GREETING];
	char name[64];

	net_name(p->wire.fd, true, name, sizeof(name));
	if (!s->foreign++)
		vbn_log(VBN_WARN,
			"refused %s: it speaks version %u of the control "
			"protocol, this rank %u",
			name, version, WIRE_VERSION);
	/* The other side reads our version in it. */
	wire_greeting(reply, &p->shake, ROLE_STORE);
	peer_send_raw(s, p, reply, sizeof(reply));
	peer_drain(s, p);
}

/* Only the prefix is common to all versions: the rest may never come. */
static bool shake_greeting(struct store *s, struct peer *p)
{
	uint8_t reply[WIRE_GREETING];
	uint32_t version = 0;
	const uint8_t *greeting = wire_peek(&p->wire, WIRE_PREFIX);
	int rc;

	if (!greeting)
		return false;
	rc = wire_greeting_check(greeting, &version);
	if (rc == -ENOMSG) {
		s->strangers++;
		peer_doom(s, p);
		return false;
	}
	if (rc) {
		shake_foreign(s, p, version);
		return true;
	}
	greeting = wire_take(&p->wire, WIRE_GREETING);
	if (!greeting)
		return false;
	wire_heard(&p->shake, ROLE_RANK, greeting);
	wire_greeting(reply, &p->shake, ROLE_STORE);
	peer_send_raw(s, p, reply, sizeof(reply));
	p->state = PEER_PROOF;
	return true;
}

static void shake_proof(struct store *s, struct peer *p, const uint8_t *proof)
{
	uint8_t mac[WIRE_MAC], verdict[WIRE_VERDICT];
	char name[64];

	wire_mac(mac, s->key, ROLE_RANK, &p->shake);
	if (!wire_mac_equal(mac, proof)) {
		memset(mac, 0, sizeof(mac));
		wire_verdict(verdict, VERDICT_DENIED, mac);
		peer_send_raw(s, p, verdict, sizeof(verdict));
		net_name(p->wire.fd, true, name, sizeof(name));
		if (!s->denied++)
			vbn_log(VBN_WARN,
				"refused %s: it does not know the job's secret",
				name);
		peer_drain(s, p);
		return;
	}
	wire_mac(mac, s->key, ROLE_STORE, &p->shake);
	wire_verdict(verdict, VERDICT_ACCEPTED, mac);
	peer_send_raw(s, p, verdict, sizeof(verdict));
	/* Sealed from the next byte on, either way. */
	if (wire_session(&p->wire.crypt, s->key, ROLE_STORE, &p->shake)) {
		peer_doom(s, p);
		return;
	}
	p->proved = true;
	p->state = PEER_JOINING;
	p->deadline = net_deadline(STORE_HANDSHAKE_MS);
}

bool store_shake(struct store *s, struct peer *p)
{
	const uint8_t *proof;

	if (p->state == PEER_GREETING)
		return shake_greeting(s, p);
	proof = wire_take(&p->wire, WIRE_MAC);
	if (proof)
		shake_proof(s, p, proof);
	return proof;
}
