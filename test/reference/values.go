package main

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chartValues is the path of the values of the chart.
const chartValues = "deploy/chart/values.yaml"

// valueTable returns the table of the values of the chart that have a comment, with its first sentence.
func valueTable(string) (map[string]string, error) {
	text, err := os.ReadFile(chartValues)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", chartValues, err)
	}
	return map[string]string{"values": table(valueRows(nil, "", document.Content[0]), "value and default", "meaning")}, nil
}

// valueRows adds the rows of a mapping. A mapping of several lines has a row for its comment and rows for
// its keys.
func valueRows(rows [][]string, prefix string, mapping *yaml.Node) [][]string {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name, comment := prefix+key.Value, firstSentence(key.HeadComment)
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 {
			if comment != "" {
				rows = append(rows, []string{code(name), comment})
			}
			rows = valueRows(rows, name+".", value)
			continue
		}
		if comment != "" {
			rows = append(rows, []string{code(name) + " (" + code(flow(value)) + ")", comment})
		}
	}
	return rows
}

// flow returns a value on one line.
func flow(value *yaml.Node) string {
	if value.Kind == yaml.ScalarNode {
		if value.Value == "" {
			return `""`
		}
		return value.Value
	}
	value.Style = yaml.FlowStyle
	text, err := yaml.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// firstSentence returns the first sentence of the last paragraph of a comment, without its marks: the
// paragraphs before belong to the file, and the file has the other sentences.
func firstSentence(comment string) string {
	paragraphs := strings.Split(comment, "\n\n")
	var words []string
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		words = append(words, strings.Fields(strings.TrimLeft(line, "# "))...)
	}
	sentence, _, _ := strings.Cut(strings.Join(words, " "), ". ")
	return strings.TrimSuffix(sentence, ".")
}
