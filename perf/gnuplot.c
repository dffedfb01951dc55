/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The script and the picture go through temporary files, so that nothing waits
 * for a pipe, and gnuplot never opens what the caller named.
 */
#include "gnuplot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: no return. */
static void become_gnuplot(int in, int out)
{
	if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execlp("gnuplot", "gnuplot", (char *)NULL);
	_exit(127);
}

/* gnuplot with these as its input and output; its exit status, or -errno. */
static int run_gnuplot(FILE *script, FILE *picture)
{
	int status;
	pid_t pid;

	if (fflush(script) != 0 || fseek(script, 0, SEEK_SET) != 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become_gnuplot(fileno(script), fileno(picture));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int copy(FILE *from, FILE *to)
{
	char buf[4096];
	size_t n, all = 0;

	rewind(from);
	while ((n = fread(buf, 1, sizeof(buf), from)) > 0) {
		fwrite(buf, 1, n, to);
		all += n;
	}
	if (ferror(from))
		return -EIO;
	return all ? 0 : -ENODATA;
}

static int say(int rc, char why[GNUPLOT_WHY])
{
	if (rc == 127) {
		snprintf(why, GNUPLOT_WHY,
			 "--plot needs gnuplot, which is not there: install "
			 "gnuplot-nox");
		return -ENOENT;
	}
	if (rc > 0) {
		snprintf(why, GNUPLOT_WHY,
			 "--plot: gnuplot exits with status %d", rc);
		return -EIO;
	}
	if (rc)
		snprintf(why, GNUPLOT_WHY, "--plot: %s", strerror(-rc));
	return rc;
}

int gnuplot_draw(gnuplot_script *write, const void *data, FILE *to,
		 char why[GNUPLOT_WHY])
{
	FILE *script = tmpfile(), *picture = tmpfile();
	int rc = -errno;

	if (script && picture) {
		write(data, script);
		rc = ferror(script) ? -EIO : run_gnuplot(script, picture);
		if (rc == 0 && to)
			rc = copy(picture, to);
	}
	if (script)
		fclose(script);
	if (picture)
		fclose(picture);
	return say(rc, why);
}
