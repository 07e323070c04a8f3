// Command client runs informers of the newest client-go.
package main

import "os"

func main() {
	os.Exit(runInformers(os.Args[1:]))
}
