run: run.c
	$(CC) -O2 -Wall -static -o $@ $<
