package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func TestWrite(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := write(b, program, "v1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two bills of the same program differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if got := bom.Metadata.Component; got.Version != "v1.2.3" || len(*got.Hashes) != 1 {
		t.Errorf("the program is %+v; want version v1.2.3 and its checksum", got)
	}
	library := func(c cdx.Component) bool {
		return c.Name == "github.com/CycloneDX/cyclonedx-go" && c.Version == "v0.9.3" && c.Hashes != nil
	}
	if !slices.ContainsFunc(*bom.Components, library) || (*bom.Components)[0].Name != "std" {
		t.Errorf("the components are %+v; want the standard library and CycloneDX with their versions", *bom.Components)
	}
}

func TestWriteErrors(t *testing.T) {
	for _, program := range []string{"/no/such/program", "main.go"} {
		if err := write(&bytes.Buffer{}, program, "v1"); err == nil {
			t.Errorf("%s: got no error", program)
		}
	}
}
