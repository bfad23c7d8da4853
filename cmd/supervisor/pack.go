//go:build ignore

// Packs the supervisor for the program that contains it (make supervisor).
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"log"
	"os"
)

func main() {
	program, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
	_, err = z.Write(program)
	// Renamed, so that whoever compiles meanwhile reads a whole file.
	err = errors.Join(err, z.Close(), os.WriteFile(os.Args[2]+".new", packed.Bytes(), 0o644), os.Rename(os.Args[2]+".new", os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
}
