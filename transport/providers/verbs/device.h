/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which devices the settings admit, and in which order they are tried.
 */
#ifndef VBN_VERBS_DEVICE_H
#define VBN_VERBS_DEVICE_H

#include "path.h"

/* A turn of trying: the device's position in libibverbs' list, and a port. */
struct device_turn {
	int device;
	int port; /* 0: all, in order, that are admitted */
};

#define DEVICE_TURNS 256

/* Returns how many turns there are. */
size_t device_order(const struct path_settings *settings,
		    struct ibv_device *const *list, int n,
		    struct device_turn turns[DEVICE_TURNS]);
/* Is the port (0: any of its ports) not excluded? */
bool device_admits(const struct path_settings *settings, const char *name,
		   int port);
/* What a job cannot do without: NULL, or what is missing. */
const char *device_lacks(const struct ibv_device_attr *attr);

#endif
