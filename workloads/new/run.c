// What happens before the power fails. The current directory is the file system under test, and empty.
// Run `powercut-ack TEXT` wherever a user would be told that TEXT is done. Built by `make`, statically: the
// guest has no libraries.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int acknowledge(const char *text)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("powercut-ack", "powercut-ack", text, (char *)NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0;
}

int main(int argc, char **argv)
{
	int forgets = argc > 1 && strcmp(argv[1], "forget") == 0;
	int lines = open("lines", O_CREAT | O_WRONLY | O_APPEND, 0644);
	int directory = open(".", O_RDONLY);

	if (lines < 0 || directory < 0)
		return 1;
	/* The name of a new file is in its directory, which needs an fsync of its own. */
	if (!forgets && fsync(directory) != 0)
		return 1;
	for (int i = 1; i <= 5; i++) {
		char text[32];

		snprintf(text, sizeof(text), "line %d", i);
		if (dprintf(lines, "%s\n", text) < 0)
			return 1;
		if (!forgets && fsync(lines) != 0)
			return 1;
		if (acknowledge(text))
			return 1;
	}
	return 0;
}
