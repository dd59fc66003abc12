run: run.rs
	rustc -g -O -C target-feature=+crt-static -o $@ $<
