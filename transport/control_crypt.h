/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who is at the other end of a control connection, and the keys of what
 * follows. Messages of fixed size, before anything else:
 *   rank  -> store  greeting: magic, version, hello (nonce, public key)
 *   store -> rank   greeting: magic, version, hello
 *   rank  -> store  proof:    MAC(secret, "rank", version, both hellos)
 *   store -> rank   verdict:  code, MAC(secret, "store", version, both hellos)
 * The first 16 bytes of a greeting are the same in every version. Public keys
 * are X25519's, made for this connection alone; the keys of each direction come
 * from the agreed key, the job's secret and both hellos. So they differ by
 * connection and direction, and a secret that leaks later opens no record.
 *
 * Then all is sealed (ChaCha20-Poly1305), with a count that does not travel as
 * the nonce: what is repeated, left out or reordered does not open.
 */
#ifndef VBN_CONTROL_CRYPT_H
#define VBN_CONTROL_CRYPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION  2u
#define WIRE_NONCE    32
#define WIRE_PUBLIC   32
#define WIRE_HELLO    (WIRE_NONCE + WIRE_PUBLIC)
#define WIRE_MAC      32
#define WIRE_KEY      32
#define WIRE_TAG      16
#define WIRE_PREFIX   16 /* magic 8, version 4, zero 4 */
#define WIRE_GREETING (WIRE_PREFIX + WIRE_HELLO)
#define WIRE_VERDICT  (4 + WIRE_MAC)

enum wire_verdict { VERDICT_ACCEPTED = 1, VERDICT_DENIED = 2 };

enum wire_role { ROLE_RANK = 1, ROLE_STORE = 2 };

/* One connection's handshake, on either side. Wiped by who holds it. */
struct wire_shake {
	uint8_t private_key[WIRE_KEY];
	uint8_t rank_hello[WIRE_HELLO], store_hello[WIRE_HELLO];
};

/* The keys of a connection; all zero: it is not sealed. */
struct wire_crypt {
	bool on;
	uint8_t tx[WIRE_KEY], rx[WIRE_KEY];
	uint64_t sent, received;
};

/* Once per process, before anything below. 0 or -EIO. */
int wire_setup(void);
/* The job's secret as a key. */
void wire_key(uint8_t key[WIRE_KEY], const char *secret);

/* A fresh hello of @role's, and the greeting that carries it. */
void wire_greeting(uint8_t greeting[WIRE_GREETING], struct wire_shake *shake,
		   enum wire_role role);
/*
 * -ENOMSG: not ours at all. -EPROTO: other version. *version if the magic is
 * right. Looks at the first WIRE_PREFIX bytes.
 */
int wire_greeting_check(const uint8_t *greeting, uint32_t *version);
/* The other side's hello, out of its greeting; @role is the other side's. */
void wire_heard(struct wire_shake *shake, enum wire_role role,
		const uint8_t greeting[WIRE_GREETING]);

/* The proof, or the verdict's part, of @role. */
void wire_mac(uint8_t mac[WIRE_MAC], const uint8_t key[WIRE_KEY],
	      enum wire_role role, const struct wire_shake *shake);
bool wire_mac_equal(const uint8_t a[WIRE_MAC], const uint8_t b[WIRE_MAC]);
void wire_verdict(uint8_t verdict[WIRE_VERDICT], enum wire_verdict code,
		  const uint8_t mac[WIRE_MAC]);
uint32_t wire_verdict_code(const uint8_t verdict[WIRE_VERDICT]);

/*
 * The connection's keys as @role, once the other side has proved itself;
 * wipes @shake. -EPROTO: its public key is none.
 */
int wire_session(struct wire_crypt *crypt, const uint8_t key[WIRE_KEY],
		 enum wire_role role, struct wire_shake *shake);

/* In place; @head is bound to it. The next of this direction. */
void wire_seal(struct wire_crypt *crypt, const uint8_t *head, size_t head_len,
	       uint8_t *data, size_t len, uint8_t tag[WIRE_TAG]);
/* -EBADMSG: not what the other side sent next. */
int wire_unseal(struct wire_crypt *crypt, const uint8_t *head, size_t head_len,
		uint8_t *data, size_t len, const uint8_t tag[WIRE_TAG]);

#endif
