run: run.c
	$(CC) -g -O2 -Wall -static -o $@ $<
