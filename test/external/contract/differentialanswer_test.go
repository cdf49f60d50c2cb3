package contract

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/google/uuid"
)

// answer is the response to a generated request in a form that can be compared.
type answer struct {
	// code is the status code with the kind of the body, such as "500 with a text".
	code string
	// parts are headers, keys and texts with their values.
	parts map[string]string
	// raw are the keys of the body with the values as they are.
	raw map[string]string
}

// exchange sends the bytes of a request and returns the response. held are addresses that clients
// had before.
func exchange(conn net.Conn, raw, method string, held map[string]string) (answer, error) {
	defer conn.Close()
	// Cilium's server may respond and close the connection before it has received a body.
	if _, err := io.WriteString(conn, raw); err != nil && !errors.Is(err, syscall.EPIPE) {
		return answer{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: strings.ToUpper(method)})
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return newAnswer(resp, body, held), nil
}

func newAnswer(resp *http.Response, body []byte, held map[string]string) answer {
	a := answer{parts: map[string]string{}, raw: map[string]string{}}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		a.parts[name] = resp.Header.Get(name)
	}
	if resp.Header.Get("X-Request-Id") != "" {
		a.parts["X-Request-Id"] = "an ID"
	}
	allow := strings.Split(resp.Header.Get("Allow"), ",")
	slices.Sort(allow)
	a.parts["Allow"] = strings.Join(allow, ",")
	a.code = fmt.Sprint(resp.StatusCode) + a.addBody(body, held)
	return a
}

// addBody adds the parts of a body and returns its kind.
func (a answer) addBody(body []byte, held map[string]string) string {
	var document any
	if len(body) == 0 {
		return ""
	}
	if json.Unmarshal(body, &document) != nil {
		a.parts["text"] = string(body)
		return " with a body"
	}
	switch d := document.(type) {
	case string:
		a.addText(d)
		return " with a text"
	case map[string]any:
		if d["code"] != nil && d["message"] != nil && len(d) == 2 {
			a.addText(fmt.Sprint(d["message"]))
			a.parts["form"] = "code and message"
			return " with a text"
		}
		a.addKeys("", d, held, map[string]string{})
	}
	return " with a body"
}

// addText adds the text of an error. go-openapi lists the allowed methods in any order.
func (a answer) addText(text string) { a.parts["text"], _, _ = strings.Cut(text, ", but [") }

// addKeys adds the keys of an object. Values that differ from run to run are replaced by what they
// are.
func (a answer) addKeys(prefix string, object map[string]any, held, uuids map[string]string) {
	for _, key := range sortedKeys(object) {
		switch v := object[key].(type) {
		case map[string]any:
			a.addKeys(prefix+key+".", v, held, uuids)
		default:
			text := fmt.Sprint(v)
			a.raw[prefix+key] = text
			_, isUUID := uuid.Parse(text)
			switch {
			case isUUID == nil:
				if uuids[text] == "" {
					uuids[text] = fmt.Sprintf("UUID %d", len(uuids)+1)
				}
				text = uuids[text]
			case strings.HasSuffix(prefix+key, ".ip") && !strings.HasPrefix(prefix, "host-addressing.") || prefix == "address." && (key == ipv4 || key == ipv6):
				text = "new"
				for name, ip := range held {
					if ip == a.raw[prefix+key] {
						text = name
					}
				}
			}
			a.parts[prefix+key] = text
		}
	}
}

// difference is one between two responses to a request.
type difference struct {
	// part is "code" or a key of answer.parts.
	part         string
	cilium, ours string
}

// differences returns what differs. Where the codes do, the parts are not compared.
func differences(r request, cilium, ours answer) []difference {
	if cilium.code != ours.code {
		return []difference{{"code", cilium.code, ours.code}}
	}
	if op := r.labels[operation]; cilium.code == "200 with a body" && (op == "healthz" || op == "config") {
		return []difference{{"body", fmt.Sprint(cilium.parts), fmt.Sprint(ours.parts)}}
	}
	var all []difference
	for _, part := range sortedKeys(cilium.parts) {
		if cilium.parts[part] != ours.parts[part] {
			all = append(all, difference{part, cilium.parts[part], ours.parts[part]})
		}
	}
	for _, part := range sortedKeys(ours.parts) {
		if _, has := cilium.parts[part]; !has && ours.parts[part] != "" {
			all = append(all, difference{part, "", ours.parts[part]})
		}
	}
	return all
}
