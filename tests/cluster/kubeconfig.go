package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// tokens are the bearer tokens every kube-apiserver of a cluster knows.
var tokens = []struct{ token, user, group string }{
	{"admin-token", "admin", "system:masters"},
	{"reader-token", "reader", ""},
	{"nobody-token", "nobody", ""},
}

func writeTokens(file string) error {
	var csv strings.Builder
	for _, t := range tokens {
		fmt.Fprintf(&csv, "%s,%s,uid-of-%s", t.token, t.user, t.user)
		if t.group != "" { // an empty last column would be a group named ""
			fmt.Fprintf(&csv, ",%q", t.group)
		}
		csv.WriteByte('\n')
	}
	return os.WriteFile(file, []byte(csv.String()), 0o600)
}

// kubeconfigs are the paths of one server's kubeconfig files.
type kubeconfigs struct {
	Admin     string `json:"admin"`
	AdminCert string `json:"adminCert"`
	Reader    string `json:"reader"`
	Nobody    string `json:"nobody"`
}

// writeKubeconfigs writes one kubeconfig per user into dir. They carry their
// credentials inline, so that each file is usable wherever it is copied to.
func writeKubeconfigs(dir, server string, p *pki) (kubeconfigs, error) {
	write := func(name string, user *api.AuthInfo) (string, error) {
		config := api.NewConfig()
		config.Clusters["judge"] = &api.Cluster{Server: server, CertificateAuthorityData: p.caPEM}
		config.AuthInfos[name] = user
		config.Contexts["judge"] = &api.Context{Cluster: "judge", AuthInfo: name}
		config.CurrentContext = "judge"
		path := filepath.Join(dir, name+".kubeconfig")
		return path, clientcmd.WriteToFile(*config, path)
	}
	var out kubeconfigs
	byUser := map[string]*string{"admin": &out.Admin, "reader": &out.Reader, "nobody": &out.Nobody}
	for _, t := range tokens {
		path, err := write(t.user, &api.AuthInfo{Token: t.token})
		if err != nil {
			return out, err
		}
		*byUser[t.user] = path
	}
	var err error
	out.AdminCert, err = write("admin-cert", &api.AuthInfo{
		ClientCertificateData: p.certPEM,
		ClientKeyData:         p.privPEM,
	})
	return out, err
}
