package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/profiletry"
)

// trialPrinter prints the report of a trial as a page.
type trialPrinter struct{ io.Writer }

func (p trialPrinter) print(r profiletry.Report) error {
	return errors.Join(p.head(r), p.steps(r.Steps), p.facts(r.Facts), p.differences(r), p.notes(r.Notes), p.proposal(r), p.leftovers(r.Leftovers))
}

func (p trialPrinter) title(text string) error {
	_, err := fmt.Fprintf(p, "\n%s:\n", text)
	return err
}

func (p trialPrinter) head(r profiletry.Report) error {
	t := output.NewTable(p)
	t.Row("Plugin:", r.Type)
	t.Row("Binary:", r.Binary)
	t.Row("Network:", r.Network)
	t.Row("Plugin versions:", strings.Join(r.Versions, ", "))
	t.Row("CNI version:", r.CNIVersion)
	t.Row("Profile in use:", r.Profile)
	return t.Flush()
}

func (p trialPrinter) steps(all []profiletry.Step) error {
	if len(all) == 0 {
		return nil
	}
	err := p.title("Steps")
	t := output.NewTable(p)
	t.Row("VERB", "CONTAINER ID", "PURPOSE", "RESULT")
	for _, s := range all {
		result := s.Outcome
		if len(s.Addresses) > 0 {
			result = strings.Join(s.Addresses, ", ")
		}
		t.Row(s.Verb, s.ContainerID, s.Purpose, result)
		if s.Error != "" {
			t.Below(2, output.OneLine(s.Error))
		}
	}
	return errors.Join(err, t.Flush())
}

func (p trialPrinter) facts(all []profiletry.Fact) error {
	if len(all) == 0 {
		return nil
	}
	err := p.title("Fields of the proposal")
	t := output.NewTable(p)
	t.Row("FIELD", "FROM", "VALUE")
	for _, f := range all {
		t.Row(f.Field, f.From, output.OneLine(string(f.Value)))
		t.Below(2, output.OneLine(f.Reason))
	}
	return errors.Join(err, t.Flush())
}

func (p trialPrinter) differences(r profiletry.Report) error {
	switch {
	case r.Proposal == nil || r.Profile != r.Type:
		return nil
	case len(r.Differences) == 0:
		_, err := fmt.Fprintf(p, "\nThe proposal equals the profile of %s.\n", r.Type)
		return err
	}
	err := p.title("Differences from the profile of " + r.Type)
	t := output.NewTable(p)
	t.Row("FIELD", "PROFILE", "PROPOSAL")
	for _, d := range r.Differences {
		t.Row(d.Field, output.OneLine(string(d.Profile)), output.OneLine(string(d.Proposal)))
		t.Below(1, output.OneLine(d.Reason))
	}
	return errors.Join(err, t.Flush())
}

func (p trialPrinter) notes(all []string) error {
	if len(all) == 0 {
		return nil
	}
	err := p.title("Notes")
	t := output.NewTable(p)
	for _, note := range all {
		t.Below(0, "- "+output.OneLine(note))
	}
	return errors.Join(err, t.Flush())
}

func (p trialPrinter) proposal(r profiletry.Report) error {
	if r.Proposal == nil {
		return nil
	}
	return errors.Join(p.title("Proposed profile"), output.JSON(p, r.Proposal))
}

// leftovers prints the IDs that could not be released at the end, where they are visible.
func (p trialPrinter) leftovers(all []profiletry.Leftover) error {
	if len(all) == 0 {
		return nil
	}
	err := p.title("Not released")
	t := output.NewTable(p)
	for _, l := range all {
		t.Below(0, l.ContainerID+": "+output.OneLine(l.Reason))
		when := "run"
		if l.AfterSeconds > 0 {
			when = fmt.Sprintf("run after %d s", l.AfterSeconds)
		}
		t.Below(0, "  "+when+": "+l.Command)
	}
	return errors.Join(err, t.Flush())
}
