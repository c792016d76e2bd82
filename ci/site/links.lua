-- Links between documents of the repository become links between pages of the site: x.md is x.html, a source file has a
-- page with ".html" behind its name, and a folder has an index.

local kinds = { rs = true, c = true, cpp = true, h = true, hpp = true, sh = true, toml = true, txt = true }

function Link(link)
  local target, fragment = link.target:match("^([^#]*)(#?.*)$")
  if target == "" or target:match("^%a+:") then
    return nil
  end
  local kind = target:match("%.(%w+)$")
  if kind == "md" then
    target = target:gsub("%.md$", ".html")
  elseif kind == nil and not target:match("LICENSE") then
    target = target:gsub("/$", "") .. "/index.html"
  elseif kind == nil or kinds[kind] then
    target = target .. ".html"
  end
  link.target = target .. fragment
  return link
end

-- A wide table scrolls by itself, not with the page.
function Table(table)
  return pandoc.Div({ table }, pandoc.Attr("", { "scroll" }))
end
