run: run.rs
	rustc -O -C target-feature=+crt-static -o $@ $<
