// What happens before the power fails. The current directory is the file system under test, and empty.
// Run `powercut-ack TEXT` wherever a user would be told that TEXT is done. Built by `make`, without cgo: the
// guest has no libraries.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
)

func main() {
	forgets := len(os.Args) > 1 && os.Args[1] == "forget"
	lines, err := os.OpenFile("lines", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	// The name of a new file is in its directory, which needs an fsync of its own.
	if !forgets {
		directory, err := os.Open(".")
		if err != nil {
			log.Fatal(err)
		}
		if err := directory.Sync(); err != nil {
			log.Fatal(err)
		}
	}
	for i := 1; i <= 5; i++ {
		text := fmt.Sprintf("line %d", i)
		if _, err := fmt.Fprintln(lines, text); err != nil {
			log.Fatal(err)
		}
		if !forgets {
			if err := lines.Sync(); err != nil {
				log.Fatal(err)
			}
		}
		if err := exec.Command("powercut-ack", text).Run(); err != nil {
			log.Fatal(err)
		}
	}
}
