// SPDX-License-Identifier: GPL-2.0
/* The host's calls that the driver needs: this file is compiled against the host's C library. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "disk.h"

void *powercut_map(const char *path, int writable, unsigned long long *bytes, int *error)
{
	struct stat info;
	void *at = MAP_FAILED;
	int fd;

	do {
		fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0) {
		*error = errno;
		return 0;
	}
	if (fstat(fd, &info) == 0)
		at = mmap(0, info.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
			  MAP_SHARED | MAP_NORESERVE, fd, 0);
	*error = errno;
	close(fd);
	if (at == MAP_FAILED)
		return 0;
	*bytes = info.st_size;
	return at;
}

void powercut_unmap(void *at, unsigned long long bytes)
{
	munmap(at, bytes);
}
