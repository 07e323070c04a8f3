//! Who is asking, and may they: authentication and authorization of local clients.
