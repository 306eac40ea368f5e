//go:build linux

package cluster

import (
	"context"
	"crypto/rand"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// requirePasswords makes the two users, and from then on etcd knows nobody else.
func (c *Cluster) requirePasswords(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	anybody := c.clientOf(t, c.Members[0].Host, Login{}, c.Endpoints()...)
	root, user := Login{"root", rand.Text()}, Login{"spendonce", rand.Text()}
	var err error
	try := func(_ any, e error) {
		if err == nil {
			err = e
		}
	}
	try(anybody.UserAdd(ctx, root.Name, root.Password))
	try(anybody.UserGrantRole(ctx, root.Name, "root"))
	try(anybody.RoleAdd(ctx, "prefix"))
	try(anybody.RoleGrantPermission(ctx, "prefix", c.Prefix, clientv3.GetPrefixRangeEnd(c.Prefix), clientv3.PermissionType(clientv3.PermReadWrite)))
	try(anybody.UserAdd(ctx, user.Name, user.Password))
	try(anybody.UserGrantRole(ctx, user.Name, "prefix"))
	try(anybody.AuthEnable(ctx))
	if err != nil {
		t.Fatalf("requiring passwords: %v", err)
	}
	c.Root, c.User = root, user
}
