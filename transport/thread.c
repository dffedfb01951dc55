/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread.h"

#include <signal.h>

int vbn_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *),
		     void *arg)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
	sigset_t all, old;
	int rc;

	/* A fault is this thread's own: the application's handler gets it. */
	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return -rc;
	pthread_setname_np(*thread, name);
	return 0;
}
