//! Accessors that lead from a pinned struct to its pinned fields. The library's `region/pinned.rs` explains why they
//! are sound.

use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Field, Fields, Lifetime, Result, parse_quote};

/// The marked fields of a struct whose fields have names.
fn marked(input: &DeriveInput) -> Result<Vec<&Field>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "only a struct has pinned fields",
        ));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(
            &input.ident,
            "name the fields: each accessor is called as its field is",
        ));
    };
    let is_marked = |field: &&Field| field.attrs.iter().any(|attr| attr.path().is_ident("pin"));
    let marked: Vec<_> = fields.named.iter().filter(is_marked).collect();
    if marked.is_empty() {
        return Err(Error::new_spanned(
            &input.ident,
            "mark the fields that are used pinned, such as robust locks, with #[pin]",
        ));
    }
    Ok(marked)
}

pub(crate) fn fields(input: DeriveInput) -> Result<Tokens> {
    let name = &input.ident;
    let marked = marked(&input)?;
    let types: Vec<_> = marked.iter().map(|field| &field.ty).collect();
    let accessors = marked.iter().map(|field| {
        let (name, ty, vis) = (&field.ident, &field.ty, &field.vis);
        let text = format!("The field `{}`, pinned.", quote!(#name));
        quote! {
            #[doc = #text]
            #[must_use]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name(self: ::core::pin::Pin<&Self>) -> ::core::pin::Pin<&#ty> {
                // SAFETY: the field moves only with the struct: see below.
                unsafe { self.map_unchecked(|this| &this.#name) }
            }
        }
    });
    let (implementation, arguments, clause) = input.generics.split_for_impl();
    let mut generics = input.generics.clone();
    let pin = Lifetime::new("'__pin", name.span());
    generics.params.insert(0, parse_quote!(#pin));
    generics.make_where_clause().predicates.push(parse_quote!(
        ::latchwork::region::PinnedParts<#pin, (#(#types,)*)>: ::core::marker::Unpin
    ));
    let (unpin_implementation, _, unpin_clause) = generics.split_for_impl();
    let bound = format_ident!("ADropCouldMoveAPinnedField");
    Ok(quote! {
        impl #implementation #name #arguments #clause {
            #(#accessors)*
        }

        // Unpin only if the pinned fields are: no other implementation can be added.
        #[allow(private_bounds)]
        impl #unpin_implementation ::core::marker::Unpin for #name #arguments #unpin_clause {}

        const _: () = {
            // Whatever has a `Drop` has this trait already.
            trait #bound {}
            #[allow(drop_bounds)]
            impl<T: ?Sized + ::core::ops::Drop> #bound for T {}
            impl #implementation #bound for #name #arguments #clause {}
        };
    })
}
