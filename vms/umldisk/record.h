/* SPDX-License-Identifier: GPL-2.0 */
/* What the disk's driver and its completions while a recording is made have in common. */
#ifndef POWERCUT_RECORD_H
#define POWERCUT_RECORD_H

#define USUAL_DEPTH 128
#define RECORDING_DEPTH 512
#define HELD_MAX 256 /* at which some are reported: others need room in the queue */

struct request;

bool powercut_hold(struct request *rq);
unsigned int powercut_hold_begin(void);

#endif
