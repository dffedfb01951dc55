/* SPDX-License-Identifier: BSD-3-Clause */
/* Checksums of payload, end to end (VBN_CHECKSUM=1). */
#ifndef VBN_CHECKSUM_H
#define VBN_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Never 0, which says that there is none. */
uint64_t checksum_of(const void *data, size_t len);

#endif
