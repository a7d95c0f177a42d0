//! The payload column's bytes, exactly as the table holds them.

use postgres::types::{FromSql, Type};

/// The bytes of a text, json, jsonb or bytea value: no decoding, no copy through another form.
pub(super) struct StoredBytes(pub(super) Vec<u8>);

impl<'a> FromSql<'a> for StoredBytes {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        // A jsonb value travels as a version number of one byte and the text (jsonb_send in PostgreSQL's source).
        let bytes = match (kind, raw) {
            (&Type::JSONB, [1, text @ ..]) => text,
            (&Type::JSONB, _) => return Err("a jsonb value of an unknown version".into()),
            _ => raw,
        };
        Ok(Self(bytes.to_vec()))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::JSON | Type::JSONB | Type::BYTEA)
    }
}
