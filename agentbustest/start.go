package agentbustest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// start opens the bus and serves it until the test ends.
func (b *Bus) start(c Config) error {
	text, err := b.yaml(c)
	if err != nil {
		return err
	}
	noEnv := func(string) (string, bool) { return "", false }
	loaded, _, err := config.Parse("Config.YAML", text, config.Source{Env: noEnv, Dev: true})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context())) // the bus ends after the test, not with it
	if b.server, err = server.New(ctx, server.Config{Config: loaded, Version: "test", Logger: c.Logger, Keys: b.principals(c)}); err != nil {
		stop()
		return err
	}
	listener, err := b.server.Listen(ctx)
	if err != nil {
		stop()
		return errors.Join(err, b.server.Close())
	}
	b.URL = "http://" + listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(ctx, listener) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			b.t.Errorf("agentbustest: serve: %v", err)
		}
		if err := b.server.Close(); err != nil {
			b.t.Errorf("agentbustest: close: %v", err)
		}
	})
	return nil
}

// principals returns a key for each principal.
func (b *Bus) principals(c Config) (keys []identity.StaticKey) {
	for _, p := range slices.Concat([]agentbus.Principal{{ID: User}}, c.Principals) {
		if p.Role == "" {
			p.Role = agentbus.PrincipalUser
		}
		secret := rand.Text()
		b.keys[p.ID] = agentbus.NewCredential("Bearer " + secret)
		keys = append(keys, identity.StaticKey{Principal: p, Secret: agentbus.NewCredential(secret)})
	}
	return keys
}

// yaml returns the configuration: what the test says, with the agents that are
// served and the store.
func (b *Bus) yaml(c Config) ([]byte, error) {
	root := map[string]any{}
	if err := yaml.Unmarshal([]byte(c.YAML), &root); err != nil {
		return nil, fmt.Errorf("read Config.YAML: %w", err)
	}
	agents := map[string]any{}
	if err := complete(root, "agents", agents); err != nil {
		return nil, err
	}
	for name, a := range b.agents {
		if err := complete(agents, name, map[string]any{"kind": "openai", "url": a.url + "/v1", "price": map[string]any{}}); err != nil {
			return nil, fmt.Errorf("agents: %w", err)
		}
	}
	store := map[string]any{"url": "sqlite:" + filepath.Join(b.t.TempDir(), "bus.db")}
	if err := complete(root, "store", store); err != nil {
		return nil, err
	}
	for key, value := range map[string]string{"listen": "127.0.0.1:0", "drain_timeout": "50ms"} {
		if _, said := root[key]; !said {
			root[key] = value
		}
	}
	return yaml.Marshal(root)
}

// complete makes the section at key what is in it already over what section says.
func complete(in map[string]any, key string, section map[string]any) error {
	said, ok := in[key].(map[string]any)
	if !ok && in[key] != nil {
		return fmt.Errorf("%s: keys and values must stand here", key)
	}
	maps.Copy(section, said)
	in[key] = section
	return nil
}
