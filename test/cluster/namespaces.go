package cluster

import "os"

// Host is the address that run.sh adds to the loopback interface, for Config.Host.
const Host = "192.0.2.1"

// Namespaced reports whether run.sh has started the test.
func Namespaced() bool { return os.Getenv("DELEGATED_IPAM_TEST_NAMESPACED") != "" }
