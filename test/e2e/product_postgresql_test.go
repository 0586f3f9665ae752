//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/cluster"
)

const (
	postgreSQLUser     = 999 // as in the recipe
	postgreSQLPassword = "e2e"
)

// A client outside the cluster writes to the primary server and reads from each replica, at their own addresses and by
// the list of all, after restarts, scaling up and down, and the loss of a node; then all of that with TLS, as libpq
// verifies it.
func TestProductPostgreSQL(t *testing.T) {
	s := newRecipe(t, "postgres:15", postgreSQLImage)
	s.provideDisks(postgreSQLUser, claimsOf("data", "postgresql", 4)...)
	node, deleteNode := s.startNode()
	s.shell("kubectl create secret generic postgresql --from-literal=password=" + postgreSQLPassword)
	class, pinned := s.pinnedUntilLost()
	s.applyRecipe("postgresql", class, pinned)
	s.awaitReplicas("postgresql", 3)
	p := &postgreSQL{
		scenario: s, login: "postgres:" + postgreSQLPassword, database: "postgres", sslMode: "disable",
		endpoints: func() map[string]string { return s.endpointsOf("postgresql", "postgresql") },
		primary:   func() string { return "postgresql-0" },
	}
	p.use("at first", 3)

	s.rollingRestart("postgresql", "postgresql")
	p.use("after a rolling restart", 3)

	s.shell("kubectl scale statefulset/postgresql --replicas=4 && kubectl rollout status statefulset/postgresql")
	p.use("after scaling up", 4)
	s.shell("kubectl scale statefulset/postgresql --replicas=3")
	s.awaitRemoved("postgresql-3")
	p.use("after scaling down", 3)

	s.loseNode(node, deleteNode, "postgresql", "postgresql")
	p.use("after the loss of a node", 3)

	s.applyTLS("postgresql")
	for _, endpoint := range s.endpointsOf("postgresql", "postgresql") {
		if err := p.query(s.ctx, endpoint, "any", func(*pgx.Conn) error { return nil }); err == nil || !strings.Contains(err.Error(), "no encryption") {
			t.Errorf("without TLS, %s answers: %v", endpoint, err)
		}
	}
	p.sslMode = p.verifyFull()
	p.use("with TLS", 3)
	s.awaitReload("postgresql", "postgresql", p.handshake)
	p.use("with the next certificates", 3)
}

// postgreSQL is the PostgreSQL of a scenario.
type postgreSQL struct {
	*scenario
	// endpoints returns the address of each server by the name of its Pod, and primary the name of the primary server.
	endpoints func() map[string]string
	primary   func() string
	// login is a user and the password, and database what it uses.
	login, database string
	// sslMode is the value of sslmode in connection strings, with the parameters that belong to it.
	sslMode string
}

// verifyFull returns the sslMode with which a client verifies each server.
func (p *postgreSQL) verifyFull() string {
	p.Helper()
	published := mustGet(p.scenario, &corev1.ConfigMap{}, p.key(names.CertificateAuthorityConfigMap))
	file := filepath.Join(p.TempDir(), names.CertificateAuthorityKey)
	p.must(os.WriteFile(file, []byte(published.Data[names.CertificateAuthorityKey]), 0o600))
	return "verify-full&sslrootcert=" + file
}

// handshake verifies the certificate of the server at an address.
func (p *postgreSQL) handshake(ctx context.Context, endpoint string) (state tls.ConnectionState, err error) {
	err = p.query(ctx, endpoint, "any", func(c *pgx.Conn) error {
		state = c.PgConn().Conn().(*tls.Conn).ConnectionState()
		return nil
	})
	return state, err
}

// postgreSQLImage has Debian's server, and what the published image of this name has besides.
func postgreSQLImage(ctx context.Context) (image.Spec, error) {
	spec, err := cluster.DebianImage(ctx, "postgresql-15", "dash", "coreutils", "sed")
	if err != nil {
		return image.Spec{}, err
	}
	spec.Files["/etc/passwd"] = image.File{Content: fmt.Appendf(nil, "postgres:x:%d:%[1]d::/:/bin/sh\npostgres:x:%d:%[2]d::/:/bin/sh\n", postgreSQLUser, cloudNativePGUser)}
	spec.Env = []string{"PATH=/usr/bin:/usr/lib/postgresql/15/bin"}
	return spec, nil
}

// use waits until a client outside the cluster writes to the primary server, by the list of all addresses,
// and reads what it has written at the address of each server, all of which are replicas but one.
func (p *postgreSQL) use(when string, servers int) {
	p.Helper()
	start := time.Now()
	endpoints := p.endpoints()
	if len(endpoints) != servers {
		p.Fatalf("%s, the Listeners have the addresses %v, want %d", when, endpoints, servers)
	}
	all := strings.Join(slices.Sorted(maps.Values(endpoints)), ",")
	value := start.Format(time.RFC3339Nano)
	if err := eventually(p.timeoutContext(), func(ctx context.Context) error {
		if err := p.query(ctx, all, "read-write", func(c *pgx.Conn) error {
			_, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS written (value text); INSERT INTO written VALUES ('"+value+"')")
			return err
		}); err != nil {
			return fmt.Errorf("writing to the primary server: %w", err)
		}
		for name, endpoint := range endpoints {
			if err := p.checkServer(ctx, endpoint, name != p.primary(), value); err != nil {
				return fmt.Errorf("reading from %s at %s: %w", name, endpoint, err)
			}
		}
		return p.query(ctx, all, "standby", func(*pgx.Conn) error { return nil })
	}); err != nil {
		p.Fatalf("from outside, %s: %v", when, err)
	}
	p.Logf("%s, the client uses %d servers, within %s", when, servers, time.Since(start).Round(time.Millisecond))
}

// checkServer returns an error unless the server at an address is a replica or not, as expected, and has the value.
func (p *postgreSQL) checkServer(ctx context.Context, endpoint string, replica bool, value string) error {
	return p.query(ctx, endpoint, "any", func(c *pgx.Conn) error {
		var isReplica, found bool
		if err := c.QueryRow(ctx, "SELECT pg_is_in_recovery(), EXISTS (SELECT FROM written WHERE value = $1)", value).Scan(&isReplica, &found); err != nil {
			return err
		}
		if isReplica != replica || !found {
			return fmt.Errorf("it is a replica: %t, want %t; it has the value: %t", isReplica, replica, found)
		}
		return nil
	})
}

// query connects from outside the cluster to the first of some addresses whose server has the attributes, as
// PostgreSQL's own library does.
func (p *postgreSQL) query(ctx context.Context, endpoints, attributes string, do func(*pgx.Conn) error) error {
	config, err := pgx.ParseConfig(fmt.Sprintf("postgresql://%s@%s/%s?target_session_attrs=%s&connect_timeout=3&sslmode=%s",
		p.login, endpoints, p.database, attributes, p.sslMode))
	if err != nil {
		return err
	}
	config.DialFunc = testbed.ClientDial
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return do(conn)
}
