/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane's handshake and keys, all of it libsodium's. */
#include "control_crypt.h"
#include "error.h"
#include "wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

static const uint8_t magic[8] = {0x93, 'V', 'B', 'N', 'C', 'T', 'L', '\n'};

_Static_assert(WIRE_MAC == crypto_auth_BYTES, "MAC");
_Static_assert(WIRE_KEY == crypto_auth_KEYBYTES, "key");
_Static_assert(WIRE_KEY == crypto_kx_SECRETKEYBYTES, "private key");
_Static_assert(WIRE_PUBLIC == crypto_kx_PUBLICKEYBYTES, "public key");
_Static_assert(WIRE_KEY == crypto_aead_chacha20poly1305_IETF_KEYBYTES, "AEAD");
_Static_assert(WIRE_TAG == crypto_aead_chacha20poly1305_IETF_ABYTES, "tag");

int wire_setup(void)
{
	if (sodium_init() < 0)
		return vbn_fail(-EIO, "libsodium found no random numbers");
	return 0;
}

void wire_key(uint8_t key[WIRE_KEY], const char *secret)
{
	static const uint8_t purpose[] = "verbena control plane";

	crypto_generichash(key, WIRE_KEY, (const uint8_t *)secret,
			   strlen(secret), purpose, sizeof(purpose) - 1);
}

static uint8_t *hello_of(struct wire_shake *shake, enum wire_role role)
{
	return role == ROLE_RANK ? shake->rank_hello : shake->store_hello;
}

void wire_greeting(uint8_t greeting[WIRE_GREETING], struct wire_shake *shake,
		   enum wire_role role)
{
	uint8_t *hello = hello_of(shake, role);

	randombytes_buf(hello, WIRE_NONCE);
	crypto_kx_keypair(hello + WIRE_NONCE, shake->private_key);
	memcpy(greeting, magic, sizeof(magic));
	put_u32(greeting + 8, WIRE_VERSION);
	put_u32(greeting + 12, 0);
	memcpy(greeting + WIRE_PREFIX, hello, WIRE_HELLO);
}

int wire_greeting_check(const uint8_t *greeting, uint32_t *version)
{
	if (memcmp(greeting, magic, sizeof(magic)))
		return -ENOMSG;
	*version = get_u32(greeting + 8);
	return *version == WIRE_VERSION ? 0 : -EPROTO;
}

void wire_heard(struct wire_shake *shake, enum wire_role role,
		const uint8_t greeting[WIRE_GREETING])
{
	memcpy(hello_of(shake, role), greeting + WIRE_PREFIX, WIRE_HELLO);
}

void wire_mac(uint8_t mac[WIRE_MAC], const uint8_t key[WIRE_KEY],
	      enum wire_role role, const struct wire_shake *shake)
{
	uint8_t text[8 + 2 * WIRE_HELLO];

	put_u32(text, (uint32_t)role);
	put_u32(text + 4, WIRE_VERSION);
	memcpy(text + 8, shake->rank_hello, WIRE_HELLO);
	memcpy(text + 8 + WIRE_HELLO, shake->store_hello, WIRE_HELLO);
	crypto_auth(mac, text, sizeof(text), key);
}

bool wire_mac_equal(const uint8_t a[WIRE_MAC], const uint8_t b[WIRE_MAC])
{
	return !sodium_memcmp(a, b, WIRE_MAC);
}

void wire_verdict(uint8_t verdict[WIRE_VERDICT], enum wire_verdict code,
		  const uint8_t mac[WIRE_MAC])
{
	put_u32(verdict, (uint32_t)code);
	memcpy(verdict + 4, mac, WIRE_MAC);
}

uint32_t wire_verdict_code(const uint8_t verdict[WIRE_VERDICT])
{
	return get_u32(verdict);
}

/* ---- after the handshake ---- */

int wire_session(struct wire_crypt *crypt, const uint8_t key[WIRE_KEY],
		 enum wire_role role, struct wire_shake *shake)
{
	static const uint8_t purpose[8] = "session";
	const uint8_t *theirs =
		hello_of(shake, role == ROLE_RANK ? ROLE_STORE : ROLE_RANK);
	uint8_t both[2 * WIRE_KEY], agreed[crypto_scalarmult_BYTES];
	crypto_generichash_state hash;
	bool rank = role == ROLE_RANK;
	int rc = crypto_scalarmult(agreed, shake->private_key,
				   theirs + WIRE_NONCE);

	if (!rc) {
		crypto_generichash_init(&hash, key, WIRE_KEY, sizeof(both));
		crypto_generichash_update(&hash, purpose, sizeof(purpose));
		crypto_generichash_update(&hash, agreed, sizeof(agreed));
		crypto_generichash_update(&hash, shake->rank_hello, WIRE_HELLO);
		crypto_generichash_update(&hash, shake->store_hello,
					  WIRE_HELLO);
		crypto_generichash_final(&hash, both, sizeof(both));
		*crypt = (struct wire_crypt){.on = true};
		memcpy(rank ? crypt->tx : crypt->rx, both, WIRE_KEY);
		memcpy(rank ? crypt->rx : crypt->tx, both + WIRE_KEY, WIRE_KEY);
		sodium_memzero(both, sizeof(both));
		sodium_memzero(&hash, sizeof(hash));
	}
	sodium_memzero(agreed, sizeof(agreed));
	sodium_memzero(shake, sizeof(*shake));
	return rc ? -EPROTO : 0;
}

/* A direction has a key of its own, so that a count is never used twice. */
static void make_nonce(
	uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES],
	uint64_t count)
{
	memset(nonce, 0, crypto_aead_chacha20poly1305_IETF_NPUBBYTES);
	put_u64(nonce, count);
}

void wire_seal(struct wire_crypt *crypt, const uint8_t *head, size_t head_len,
	       uint8_t *data, size_t len, uint8_t tag[WIRE_TAG])
{
	uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];

	make_nonce(nonce, crypt->sent++);
	crypto_aead_chacha20poly1305_ietf_encrypt_detached(
		data, tag, NULL, data, len, head, head_len, NULL, nonce,
		crypt->tx);
}

int wire_unseal(struct wire_crypt *crypt, const uint8_t *head, size_t head_len,
		uint8_t *data, size_t len, const uint8_t tag[WIRE_TAG])
{
	uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];

	make_nonce(nonce, crypt->received++);
	return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
		       data, NULL, data, len, tag, head, head_len, nonce,
		       crypt->rx)
		       ? -EBADMSG
		       : 0;
}
