//! A custom resource: CronTabs.

/// The definition with these properties of `spec`.
pub(crate) fn definition(properties: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: crontabs.stable.example.com}}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {{plural: crontabs, singular: crontab, kind: CronTab}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {{spec: {{type: object, properties: {properties}}}}}
"#
    )
}

/// An object with this `spec`.
pub(crate) fn crontab(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n"
    )
}
