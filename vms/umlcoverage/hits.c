// SPDX-License-Identifier: GPL-2.0
/*
 * Which code a UML guest ran, as memory of the host: a byte for each 4 bytes of the kernel's text, 1 once a call to
 * __sanitizer_cov_trace_pc from there has run. GCC puts such a call at the begin of every basic block of a file that
 * is compiled with -fsanitize-coverage=trace-pc; it takes 5 bytes, so no two share a byte here.
 *
 * The file is one for all guests of a run, and they only ever write a 1: what a guest that died had run is in it.
 */
#include <linux/compiler.h>
#include <linux/init.h>
#include <linux/panic.h>
#include <asm/sections.h>
#include "../powercut/disk.h"

void __sanitizer_cov_trace_pc(void);
void powercut_ran(unsigned int number);

static char *hits_path;
static unsigned char *hits;
static unsigned long long hits_bytes;

static int __init take_path(char *text)
{
	hits_path = text;
	return 1;
}
__setup("powercut_hits=", take_path);

void notrace __sanitizer_cov_trace_pc(void)
{
	unsigned long at = ((unsigned long)__builtin_return_address(0) - (unsigned long)_stext) >> 2;

	if (hits && at < hits_bytes)
		hits[at] = 1;
}

/* A mark in the source of a changed line: see harness/patches/marks.py. Such a kernel has no other calls. */
void notrace powercut_ran(unsigned int number)
{
	if (hits && number < hits_bytes)
		hits[number] = 1;
}

static int __init map_hits(void)
{
	int error = 0;

	if (!hits_path)
		return 0;
	hits = powercut_map(hits_path, 1, &hits_bytes, &error);
	if (!hits)
		panic("powercut_hits: cannot map %s: error %d of the host\n", hits_path, error);
	return 0;
}
early_initcall(map_hits);
