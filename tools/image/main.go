// Command image makes the container image of one static program, and of those that belong to it in
// the same directory, for each architecture for which the program is given, and writes them as one archive: an OCI image layout that docker load takes,
// too. It needs no root, no daemon and no network, and writes only the archive. The same programs,
// licence and flags give the same bytes.
//
//	image -name NAME -tag TAG -version VERSION -revision COMMIT -time SECONDS -license FILE -out FILE PROGRAM...
package main

import (
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run makes the archive that the arguments of the command line describe and prints a line about it.
func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var s source
	flags.StringVar(&s.name, "name", "", "name of the program and of its image")
	tag := flags.String("tag", "local", "tag of the image")
	flags.StringVar(&s.version, "version", "unknown", "version, for the image's label")
	flags.StringVar(&s.revision, "revision", "unknown", "commit, for the image's label")
	seconds := flags.Int64("time", 0, "time of the commit in seconds since 1970, for files and image")
	license := flags.String("license", "LICENSE", "file with the licence")
	out := flags.String("out", "", "archive to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() == 0 {
		return errors.New("expected -out FILE and the program of each architecture")
	}
	s.time = time.Unix(*seconds, 0).UTC()
	var err error
	if s.license, err = os.ReadFile(*license); err != nil {
		return err
	}
	images := map[string]v1.Image{}
	for _, path := range flags.Args() {
		arch, programs, err := s.readPrograms(path)
		if err != nil {
			return err
		}
		if images[arch] != nil {
			return fmt.Errorf("%s: a second program for %s", path, arch)
		}
		if images[arch], err = s.image(arch, programs); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	a := archive{name: s.name, tag: *tag, images: images, time: s.time}
	if err := a.writeFile(*out); err != nil {
		return fmt.Errorf("%s: %w", *out, err)
	}
	info, err := os.Stat(*out)
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s: %s for %v, %d bytes\n", *out, a.qualified(), a.architectures(), info.Size())
	}
	return err
}

// program is a file of the image in /usr/bin, and the licences of its modules in /licenses.
type program struct {
	name              string
	content, licenses []byte
}

// readPrograms reads the program of the image and those beside it, for one architecture.
func (s source) readPrograms(path string) (arch string, programs []program, err error) {
	_, _, beside, err := s.purpose()
	if err != nil {
		return "", nil, err
	}
	arch, content, err := readProgram(path)
	if err != nil {
		return "", nil, err
	}
	programs = []program{{s.name, content, nil}}
	for _, name := range beside {
		other := filepath.Join(filepath.Dir(path), name)
		otherArch, content, err := readProgram(other)
		if err != nil {
			return "", nil, err
		}
		if otherArch != arch {
			return "", nil, fmt.Errorf("%s is for %s; expected %s as %s", other, otherArch, arch, path)
		}
		programs = append(programs, program{name, content, nil})
	}
	for i, p := range programs {
		if programs[i].licenses, err = os.ReadFile(filepath.Join(filepath.Dir(path), p.name+".licenses")); err != nil {
			return "", nil, err
		}
	}
	return arch, programs, nil
}

// readProgram reads a program and returns for which architecture it is, in the words of GOARCH. A
// dynamic one is an error: the image has neither a loader nor libraries.
func readProgram(path string) (arch string, program []byte, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	defer file.Close()
	switch file.Machine {
	case elf.EM_X86_64:
		arch = "amd64"
	case elf.EM_AARCH64:
		arch = "arm64"
	default:
		return "", nil, fmt.Errorf("%s is for %s; expected x86-64 or aarch64", path, file.Machine)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return "", nil, fmt.Errorf("%s is dynamically linked; expected a static program (CGO_ENABLED=0)", path)
		}
	}
	program, err = os.ReadFile(path)
	return arch, program, err
}
