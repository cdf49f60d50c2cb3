// Command release puts together what a release page needs, from programs, images and bills of materials
// that "make release" has built: archives of the programs, both images, manifests, chart and values
// that name the version and its images by digest, checksums, and notes. It needs no network. The same
// inputs give the same bytes.
//
//	release -check -version VERSION -root DIR
//	release -version VERSION -root DIR -programs DIR -parts DIR -time SECONDS -out DIR
//
// With -check it only reports whether the version can be built from the checkout.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what the files of a release are made from.
type release struct {
	version version
	// root is the checkout.
	root string
	// programs contains ARCHITECTURE/NAME and NAME.licenses; parts contains the images, NAME.tar, and the
	// bills of materials, NAME-ARCHITECTURE.cdx.json.
	programs, parts string
	// time is the time of the commit, and of every file in an archive.
	time time.Time
	// out is the directory that gets the files.
	out string
}

// run does what the arguments of the command line describe and prints the files.
func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	var r release
	check := flags.Bool("check", false, "only check the version")
	name := flags.String("version", "", "vMAJOR.MINOR.PATCH, with a suffix for a pre-release")
	flags.StringVar(&r.root, "root", ".", "directory of the checkout")
	flags.StringVar(&r.programs, "programs", "", "directory with ARCHITECTURE/NAME")
	flags.StringVar(&r.parts, "parts", "", "directory with images and bills of materials")
	seconds := flags.Int64("time", 0, "time of the commit in seconds since 1970")
	flags.StringVar(&r.out, "out", "", "directory to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if r.version, err = parseVersion(*name); err != nil {
		return err
	}
	if err := r.version.checkCheckout(r.root); err != nil {
		return err
	}
	if _, err := r.notes(); err != nil || *check {
		return err
	}
	if r.out == "" || r.programs == "" || r.parts == "" {
		return errors.New("expected -programs, -parts and -out")
	}
	r.time = time.Unix(*seconds, 0).UTC()
	if err := r.write(); err != nil {
		return err
	}
	return list(stdout, r.out)
}

// write writes every file into an empty directory, which gets its name when it is complete.
func (r release) write() error {
	final := r.out
	r.out = final + ".new"
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{r.writePrograms, r.writeImages, r.writeManifests, r.writeSums, r.writeNotes} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(r.out, final)
}

// list prints the files of a directory with their sizes in bytes.
func list(w io.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%10d  %s\n", info.Size(), filepath.Join(dir, e.Name()))
	}
	return err
}

// save writes a file of the release.
func (r release) save(name string, content []byte) error {
	path := filepath.Join(r.out, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644) // independent of the umask
}
